#!/usr/bin/env bash
# Works through a file of issue numbers with Claude Code. Kill it at any line, even with -9, and start it again:
# every issue is done once. It commits and comments only when files have changed and $CHECK passes.
# CLAUDE and GH name other programs, CLAUDE_FLAGS other flags, CHECK a command such as "make test".
#
#     CHECK="make test" examples/claude-loop.sh issues.txt
set -eu -o pipefail
eval "$(outlast shell-init)"

list=${1:?usage: claude-loop.sh FILE-OF-ISSUE-NUMBERS}
export CLAUDE=${CLAUDE:-claude} GH=${GH:-gh} CHECK=${CHECK:-true} BEFORE=
# It may edit files without asking; to let it run commands too: CLAUDE_FLAGS="--permission-mode acceptEdits --allowedTools Bash".
CLAUDE_FLAGS=${CLAUDE_FLAGS---permission-mode acceptEdits}
[ -z "$RECOVERED_TASK_ID" ] || printf 'going on with issue %s\n' "$RECOVERED_TASK_ID"

# A session that changed nothing is not done, whatever it says.
export STATE='{ git status --porcelain; git diff HEAD; } | git hash-object --stdin'
check='[ "$(sh -c "$STATE")" != "$BEFORE" ] || { echo "issue $ISSUE_NUMBER: no file has changed" >&2; exit 1; }
    sh -c "$CHECK" || { echo "issue $ISSUE_NUMBER: the check fails: $CHECK" >&2; exit 1; }'
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
    BEFORE=$(outlast step "before $number" -- sh -c "$STATE")
    # shellcheck disable=SC2086  # the flags are words
    outlast step "work $number" --retry-failed -- "$CLAUDE" $CLAUDE_FLAGS -p "Fix issue $number. Do not commit." </dev/null
    outlast step "check $number" --retry-failed -- sh -c "$check"
    outlast step "commit $number" --retry-failed -- sh -c "$commit"
    outlast effect "comment $number" --probe "$probe" -- sh -c "$comment"
    CURRENT_TASK_ID=
done 3< <(awk 'NF && !seen[$1]++ { print $1 }' "$list")
