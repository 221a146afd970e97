# Printed by `outlast shell-init` for scripts of bash and zsh:   eval "$(outlast shell-init)"
#
# The script is in a run from here on. `outlast step`, `effect` and `run` run in the background and are waited for, so
# that a signal to the script alone is acted upon at once. Traps of the script are kept and run inside of ours.
# Interactive shells are left alone. Every name of ours begins with __outlast.

if [ -z "${BASH_VERSION-}${ZSH_VERSION-}" ]; then
    printf 'outlast: shell-init is for bash and zsh\n' >&2
    exit 2
elif case ${BASH_VERSION-9} in [123].* | 4.[0123].*) true ;; *) false ;; esac; then
    printf 'outlast: shell-init needs bash 4.4 or later, this is %s\n' "$BASH_VERSION" >&2
    exit 2
elif case :${SHELLOPTS-}: in *:posix:*) true ;; *) false ;; esac; then
    printf 'outlast: in its posix mode bash has no functions that are called trap: `set +o posix` before shell-init\n' >&2
    exit 2
elif case $- in *i*) true ;; *) [ "${__outlast_shell-}" = "$$" ] ;; esac; then
    : # a person's own shell, or done already
else

__outlast_shell=$$
__outlast_level=${BASH_SUBSHELL:-${ZSH_SUBSHELL:-0}}
__outlast_child=
__outlast_has_left=

# Handlers of zsh that are functions, TRAPEXIT and the like, are kept under a name of ours: a trap would remove them.
# This comes first, for TRAPEXIT also runs at the end of every $( ).
[ -z "${ZSH_VERSION-}" ] || eval 'for __outlast_name in EXIT TERM INT HUP; do
    if [ -n "${functions[TRAP$__outlast_name]-}" ]; then
        functions[__outlast_own_$__outlast_name]=${functions[TRAP$__outlast_name]}
        unfunction "TRAP$__outlast_name"
        case $__outlast_name in
            EXIT) __outlast_user_EXIT="__outlast_own_EXIT 0" ;;
            TERM) __outlast_user_TERM="__outlast_own_TERM 15 || exit" ;;
            INT) __outlast_user_INT="__outlast_own_INT 2 || exit" ;;
            HUP) __outlast_user_HUP="__outlast_own_HUP 1 || exit" ;;
        esac
    fi
done'

__outlast_program=$(command -v outlast)

__outlast_is_main() { [ "${BASH_SUBSHELL:-${ZSH_SUBSHELL:-0}}" = "$__outlast_level" ]; }

# -- the run -------------------------------------------------------------------------------------------------------

__outlast_join() {
    local said
    if ! said=$("$__outlast_program" __attach --pid "$$" --script "$1"); then
        exit 2
    fi
    eval "$said"
    exec {__outlast_fd}<>"$__outlast_pipe"
}

# Tells whoever keeps the run how this shell fares: a few bytes into a pipe, no program, no waiting.
__outlast_tell() {
    printf '%s\0' "$1" "$$" "=${2-}" "CURRENT_TASK_ID=${CURRENT_TASK_ID-}" "ISSUE_NUMBER=${ISSUE_NUMBER-}" \
        "WORKSPACE_PATH=${WORKSPACE_PATH-}" "BRANCH_NAME=${BRANCH_NAME-}" "PROGRESS_STAGE=${PROGRESS_STAGE-}" '' \
        2>/dev/null >&"$__outlast_fd" || :
}

# -- commands ------------------------------------------------------------------------------------------------------

# Runs a command so that a signal to this shell is acted upon at once, and ends with its exit code.
outlast_run() {
    local __outlast_code=0 __outlast_again=0 __outlast_in
    if ! __outlast_is_main; then
        "$@" || __outlast_code=$?
        return "$__outlast_code"
    fi
    if { : <&0; } 2>/dev/null; then
        exec {__outlast_in}<&0
        OUTLAST_IN_BACKGROUND=1 "$@" <&"$__outlast_in" {__outlast_in}<&- &
        __outlast_child=$!
        exec {__outlast_in}<&-
    else
        OUTLAST_IN_BACKGROUND=1 "$@" <&- &
        __outlast_child=$!
    fi
    wait "$__outlast_child" || __outlast_code=$?
    # A signal that the script shrugged off ends the wait, not the command.
    while [ "$__outlast_code" -gt 128 ] && kill -0 "$__outlast_child" 2>/dev/null; do
        __outlast_code=0
        wait "$__outlast_child" || __outlast_code=$?
    done
    if [ "$__outlast_code" -gt 128 ]; then # perhaps of the signal; the shell still knows the command's own
        wait "$__outlast_child" 2>/dev/null || __outlast_again=$?
        [ "$__outlast_again" = 127 ] || __outlast_code=$__outlast_again
    fi
    __outlast_child=
    return "$__outlast_code"
}

# An upgrade may move the package; so only where it is gone, the program is asked whether it runs. In a trap a bare
# `return` has the code from before it: each says its own.
__outlast_is_there() {
    if [ -e "$__outlast_package" ] && [ -x "$__outlast_program" ]; then return 0; fi
    if "$__outlast_program" --version >/dev/null 2>&1; then return 0; fi
    printf 'outlast: `outlast %s` was not run, for outlast is not installed any more: %s is gone. Install it, then start the script again.\n' \
        "${1-}" "$__outlast_package" >&2
    return 125
}

outlast() {
    local __outlast_code=0
    __outlast_is_there "$@" || return 125
    case ${1-} in
        step | effect | run) outlast_run "$__outlast_program" "$@" || __outlast_code=$? ;;
        stage)
            PROGRESS_STAGE=${2-} "$__outlast_program" "$@" || __outlast_code=$?
            [ "$__outlast_code" != 0 ] || PROGRESS_STAGE=${2-}
            ;;
        *) "$__outlast_program" "$@" || __outlast_code=$? ;;
    esac
    return "$__outlast_code"
}

# -- signals -------------------------------------------------------------------------------------------------------

# The script is to stop: said at once, and the command under way is stopped too. Then the script's own handler runs.
__outlast_interrupted() {
    local __outlast_code=$?
    __outlast_tell interrupted "$1"
    [ -z "$__outlast_child" ] || kill -TERM "$__outlast_child" 2>/dev/null || :
    return "$__outlast_code"
}

# bash runs its EXIT trap, with 0, when a signal kills it: such a death is told before, then died as ever.
__outlast_killed() {
    __outlast_tell killed "$1"
    builtin trap - "$1"
    kill -s "$1" "$$"
}

# The handler of the script that follows finds the exit code in $?, as without us.
__outlast_left() {
    local __outlast_code=$?
    set +e
    __outlast_has_left=1
    __outlast_tell left "$__outlast_code"
    return "$__outlast_code"
}

# zsh calls this after its EXIT trap, also when something else has become that trap: a TRAPEXIT function, or, for a
# shell-init in a function, the trap from outside of it, which comes back when the function returns.
__outlast_at_zshexit() {
    local __outlast_code=$?
    if [ -z "$__outlast_has_left" ] && __outlast_is_main; then
        __outlast_tell left "$__outlast_code"
    fi
}

# -- traps ---------------------------------------------------------------------------------------------------------

# The signals that are ours too: its name is left in __outlast_name, empty for all others.
__outlast_known() {
    case $1 in
        TERM | SIGTERM | term | sigterm | 15) __outlast_name=TERM ;;
        INT | SIGINT | int | sigint | 2) __outlast_name=INT ;;
        HUP | SIGHUP | hup | sighup | 1) __outlast_name=HUP ;;
        EXIT | exit | 0) __outlast_name=EXIT ;;
        *) __outlast_name= ;;
    esac
    [ -z "${BASH_VERSION-}" ] || case $1 in
        PIPE | SIGPIPE | pipe | sigpipe | 13) __outlast_name=PIPE ;;
        ALRM | SIGALRM | alrm | sigalrm | 14) __outlast_name=ALRM ;;
        USR1 | SIGUSR1 | usr1 | sigusr1 | 10) __outlast_name=USR1 ;;
        USR2 | SIGUSR2 | usr2 | sigusr2 | 12) __outlast_name=USR2 ;;
        XCPU | SIGXCPU | xcpu | sigxcpu | 24) __outlast_name=XCPU ;;
    esac
}

# Sets the real trap: ours, with the script's own inside if it has one.
__outlast_arm() {
    # EXIT is the shell's, not this function's; nor do the others end with it.
    [ -z "${ZSH_VERSION-}" ] || setopt localoptions posixtraps nolocaltraps
    local __outlast_text=- __outlast_number
    eval "__outlast_text=\${__outlast_user_$1--}"
    case $1 in TERM) __outlast_number=15 ;; INT) __outlast_number=2 ;; HUP) __outlast_number=1 ;; esac
    case $1:$__outlast_text in
        EXIT:-) builtin trap '__outlast_left' EXIT ;;
        EXIT:*) builtin trap "__outlast_left
$__outlast_text" EXIT ;;
        *:) builtin trap '' "$1" ;;
        TERM:- | INT:- | HUP:-)
            builtin trap "__outlast_interrupted $1 || :; exit $((128 + __outlast_number))" "$1"
            ;;
        TERM:* | INT:* | HUP:*) # both branches are the same but for $?, which `set -e` is to let pass
            builtin trap "if __outlast_interrupted $1; then
eval \"\$__outlast_user_$1\"
else
eval \"\$__outlast_user_$1\"
fi
__outlast_tell went_on $1" "$1"
            ;;
        *:-) builtin trap "__outlast_killed $1" "$1" ;;
        *) builtin trap -- "$__outlast_text" "$1" ;;
    esac
}

__outlast_set() {
    __outlast_known "$2"
    if [ -z "$__outlast_name" ]; then
        case ${BASH_VERSION:+bash}:$1:$2 in
            # What a function of bash resets here comes back when it returns; what does nothing stays.
            bash:-:ERR | bash:-:DEBUG | bash:-:RETURN) builtin trap : "$2" ;;
            *) builtin trap -- "$1" "$2" || return 1 ;;
        esac
        return 0
    fi
    if [ "$1" = - ]; then
        unset "__outlast_user_$__outlast_name"
    else
        eval "__outlast_user_$__outlast_name=\$1"
    fi
    if __outlast_is_main; then
        __outlast_arm "$__outlast_name"
    else
        builtin trap -- "$1" "$2"
    fi
}

# Shows the script's own traps, as `trap -p` would without us.
__outlast_show() {
    local __outlast_one __outlast_text
    if [ $# -eq 0 ]; then
        set -- EXIT HUP INT PIPE ALRM TERM USR1 USR2 XCPU QUIT CHLD CONT TSTP TTIN TTOU WINCH ERR DEBUG
    fi
    for __outlast_one in "$@"; do
        __outlast_known "$__outlast_one"
        if [ -n "$__outlast_name" ]; then
            eval "[ -n \"\${__outlast_user_$__outlast_name+x}\" ] || continue"
            eval "__outlast_text=\$__outlast_user_$__outlast_name"
            __outlast_quote
            [ "$__outlast_name" = EXIT ] || [ -n "${ZSH_VERSION-}" ] || __outlast_name=SIG$__outlast_name
            printf 'trap -- %s %s\n' "$__outlast_text" "$__outlast_name"
        elif [ -n "${BASH_VERSION-}" ]; then
            builtin trap -p "$__outlast_one"
        fi
    done
}

__outlast_trap() {
    [ -z "${ZSH_VERSION-}" ] || setopt localoptions posixtraps nolocaltraps
    local __outlast_action=- __outlast_sig __outlast_code=0
    case ${1--p} in
        -l)
            builtin trap -l
            return 0
            ;;
        -p)
            [ $# -eq 0 ] || shift
            __outlast_show "$@"
            return 0
            ;;
        --) shift ;;
    esac
    case $#:${1-} in
        0:* | 1:* | *:[0-9] | *:[0-9][0-9]) ;;
        *)
            __outlast_action=$1
            shift
            ;;
    esac
    for __outlast_sig in "$@"; do
        __outlast_set "$__outlast_action" "$__outlast_sig" || __outlast_code=$?
    done
    return "$__outlast_code"
}

# -- begin ---------------------------------------------------------------------------------------------------------

eval 'trap() { __outlast_trap "$@"; }' # other shells cannot even read such a function
__outlast_script=$0
[ -z "${ZSH_VERSION-}" ] || __outlast_script=${ZSH_ARGZERO:-$0} # $0 is a function's name within it
__outlast_join "$__outlast_script"
if [ -n "${ZSH_VERSION-}" ]; then
    eval '__outlast_quote() { __outlast_text=${(qq)__outlast_text}; }'
    builtin trap >|"$__outlast_pipe.$$"
    eval "$(cat "$__outlast_pipe.$$" && rm -f "$__outlast_pipe.$$")"
    eval 'zshexit_functions+=(__outlast_at_zshexit)'
    # An EXIT trap without posixtraps is put aside while a function runs and comes back after it, in place of whatever
    # that function has set: such a trap must be gone, here and not in a function, before ours can stay.
    builtin trap - EXIT
    for __outlast_sig in EXIT TERM INT HUP; do
        __outlast_arm "$__outlast_sig"
    done
else
    eval '__outlast_quote() { __outlast_text=${__outlast_text@Q}; }'
    for __outlast_sig in EXIT TERM INT HUP PIPE ALRM USR1 USR2 XCPU; do
        eval "$(builtin trap -p "$__outlast_sig")"
        __outlast_arm "$__outlast_sig"
    done
fi
unset __outlast_sig __outlast_script
fi
