# fish completion of runonce
function __runonce_complete
	set -l words (commandline -opc) (commandline -ct)
	command $words --generate-bash-completion 2>/dev/null
end
complete -c runonce -f -a '(__runonce_complete | string match -v :files)'
complete -c runonce -F -n '__runonce_complete | string match -q :files'
