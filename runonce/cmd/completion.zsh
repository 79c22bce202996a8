#compdef runonce
_runonce() {
	local line files=
	local -a found
	for line in "${(@f)$("${(@)words[1,CURRENT]}" --generate-bash-completion 2>/dev/null)}"; do
		if [[ "$line" == :files ]]; then
			files=1
		elif [[ -n "$line" ]]; then
			found+=("${${line//:/\\:}/$'\t'/:}")
		fi
	done
	if (( ${#found} )); then
		_describe 'runonce' found
	fi
	if [[ -n "$files" ]]; then
		[[ "$PREFIX" == --*=* ]] && compset -P '*='
		_files
	fi
}
# zsh runs a file of its function path at the first completion; others source it.
if [[ "${funcstack[1]}" == _runonce ]]; then
	_runonce "$@"
else
	compdef _runonce runonce
fi
