#!/usr/bin/env bash
# One comment on the pull request, written anew by each run; what action.yml calls.
# A pull request from a fork has no token that may write: that is said, and fails nothing.
set -euo pipefail
[[ "$COMMENT" == true ]] || exit 0

mark="<!-- sfbench-gate: ${ARTIFACT//[^a-zA-Z0-9._-]/-} -->"
body="$(mktemp)"
trap 'rm -f "$body"' EXIT
if [[ ! -s "$REPORT/gate.md" ]]; then
  echo "::notice title=sfbench gate::no comment: nothing was measured"
  exit 0
fi
printf '%s\n' "$mark" >"$body"
cat "$REPORT/gate.md" >>"$body"

told() {
  echo "::notice title=sfbench gate::no comment: the token may not write one (pull-requests: write)"
  exit 0
}
comments="repos/$REPOSITORY/issues/$NUMBER/comments"
# Only what begins with the mark and was written by a bot is this action's own.
ours="$(gh api --paginate "$comments" --jq \
  ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$mark\"))) | .id")" || told
ours="${ours%%$'\n'*}"
if [[ -n "$ours" ]]; then
  gh api --silent --method PATCH "repos/$REPOSITORY/issues/comments/$ours" -F "body=@$body" || told
else
  gh api --silent --method POST "$comments" -F "body=@$body" || told
fi
