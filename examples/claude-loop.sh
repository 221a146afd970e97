#!/usr/bin/env bash
# Works through a file of issue numbers with Claude Code. Kill it at any line, even with -9, and start it again:
# every issue is done once. CLAUDE and GH name other programs.
#
#     examples/claude-loop.sh issues.txt
set -eu -o pipefail
eval "$(outlast shell-init)"

list=${1:?usage: claude-loop.sh FILE-OF-ISSUE-NUMBERS}
export CLAUDE=${CLAUDE:-claude} GH=${GH:-gh}
[ -z "$RECOVERED_TASK_ID" ] || printf 'going on with issue %s\n' "$RECOVERED_TASK_ID"

# Remove the lock of a killed git: nothing of an earlier start runs any more.
commit='rm -f "$(git rev-parse --git-path index.lock)" && git add -A &&
    { git diff --cached --quiet || git commit -q -m "Issue $ISSUE_NUMBER"; }'
# The comment contains its key, so that the probe can find it: exit 0 it exists, 1 it does not, 2 unknown.
comment='"$GH" issue comment "$ISSUE_NUMBER" --body "Done, please review. <!-- $OUTLAST_KEY -->"'
probe='found=$("$GH" issue view "$ISSUE_NUMBER" --json comments --jq ".comments[].body") || exit 2
    printf "%s\n" "$found" | grep -qF -- "$OUTLAST_KEY"'

while read -r number <&3; do
    export CURRENT_TASK_ID=$number ISSUE_NUMBER=$number
    outlast stage "issue $number"
    outlast step "work $number" --retry-failed -- "$CLAUDE" -p "Fix issue $number. Do not commit." </dev/null
    outlast step "commit $number" --retry-failed -- sh -c "$commit"
    outlast effect "comment $number" --probe "$probe" -- sh -c "$comment"
    CURRENT_TASK_ID=
done 3< <(awk 'NF && !seen[$1]++ { print $1 }' "$list")
