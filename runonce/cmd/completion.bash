# bash completion of runonce
_runonce() {
	local cur="${COMP_WORDS[COMP_CWORD]}" files= line
	COMPREPLY=()
	while IFS=$'\t' read -r line _; do
		if [[ "$line" == :files ]]; then
			files=1
		else
			COMPREPLY+=("$line")
			[[ "$line" != *: ]] || compopt -o nospace 2>/dev/null
		fi
	done < <("${COMP_WORDS[@]:0:COMP_CWORD+1}" --generate-bash-completion 2>/dev/null)
	[[ -n "$files" ]] || return
	if [[ "$cur" == = ]]; then
		cur=
	fi
	local paths
	mapfile -t paths < <(compgen -f -- "$cur")
	if [[ ${#paths[@]} -gt 0 ]]; then
		compopt -o filenames 2>/dev/null
		COMPREPLY+=("${paths[@]}")
	fi
}
complete -F _runonce runonce
