#!/usr/bin/env bash
# One gate; what action.yml calls. Every variable comes from its inputs.
set -euo pipefail

if [[ -z "$BASE" ]]; then
  echo "::error title=sfbench gate::no base: not a pull request; give the input base"
  exit 2
fi
report="${RUNNER_TEMP:-/tmp}/scaling-gate"
mkdir -p "$report"
echo "report=$report" >>"${GITHUB_OUTPUT:-/dev/null}"

words=(--base "$BASE" --devices "$DEVICES" --margin "$MARGIN" --budget "$BUDGET")
[[ -z "$PATHS" ]] || words+=(--paths "$PATHS")
# The words of an input, quoted so that the shell takes each as it is; where a quote is not closed,
# what is wrong instead, and a failure.
quoted() {
  printf '%s' "$1" | python3 -c 'import shlex, sys
try:
    print(shlex.join(shlex.split(sys.stdin.read())))
except ValueError as error:
    print(error)
    sys.exit(1)'
}
refuse() {
  echo "::error title=sfbench gate::the input $1 cannot be read as in a shell: $2"
  exit 2
}
more_words="$(quoted "$OPTIONS")" || refuse options "$more_words"
arg_words="$(quoted "$SCRIPT_ARGS")" || refuse args "$arg_words"
declare -a more="($more_words)"
declare -a args="($arg_words)"

read -ra tool <<<"$SFBENCH"
code=0
"${tool[@]}" gate "$TARGET" "${words[@]}" "${more[@]}" --json \
  --markdown "$report/gate.md" --junit "$report/gate.xml" --report "$report/gate.html" \
  -- "${args[@]}" >"$report/gate.json" || code=$?
if [[ -s "$report/gate.json" ]]; then
  verdict="$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$report/gate.json")"
  echo "verdict=$verdict" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
if ((code == 2)) && [[ ! -s "$report/gate.json" ]]; then
  echo "::error title=sfbench gate::nothing was measured: the log of this step says what is wrong"
fi
# Undecided is no fault of the change, unless one says so.
if ((code == 3)) && [[ "$FAIL_UNDECIDED" != true ]]; then
  exit 0
fi
# A person has looked at it, and said so with a label. What is broken stays broken.
if ((code == 1)) && [[ "${ALLOWED:-false}" == true ]]; then
  echo "::warning title=sfbench gate::a regression, let through by the label $ALLOW_LABEL"
  exit 0
fi
exit "$code"
