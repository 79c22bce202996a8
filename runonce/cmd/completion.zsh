#compdef runonce
_runonce() {
	local -a opts
	if [[ "${words[-1]}" == -* ]]; then
		opts=("${(@f)$(${words[@]} --generate-bash-completion 2>/dev/null)}")
	else
		opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
	fi
	if [[ -n "${opts[1]}" ]]; then
		_describe 'values' opts
	else
		_files
	fi
}
compdef _runonce runonce
