# bash completion of runonce
_runonce() {
	local cur="${COMP_WORDS[COMP_CWORD]}" opts
	local words=("${COMP_WORDS[@]:0:$COMP_CWORD}")
	if [[ "$cur" == -* ]]; then
		words+=("$cur")
	fi
	opts=$("${words[@]}" --generate-bash-completion 2>/dev/null)
	mapfile -t COMPREPLY < <(compgen -W "$opts" -- "$cur")
}
complete -o bashdefault -o default -F _runonce runonce
