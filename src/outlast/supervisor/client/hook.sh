# What an agent's hooks run: sh hook.sh PYTHON SOCKET ATTEMPT AGENT [CLASSES]
# Agents let a call pass when its hook dies. So the client runs below this one, and whatever ends it is a denial.
# It is imported, for a file that is run is compiled each time. Byte code is there; what a full disk cut off would stay (-B).
python=$1 client='import sys; sys.path.append(sys.argv.pop(1)); import hook; sys.exit(hook.main(*sys.argv[1:5]))'
shift
"$python" -I -S -B -c "$client" "${0%/*}" "$@"
code=$?
case $code in
0 | 2) exit $code ;;
esac
[ -x "$python" ] && why="its hook ended with $code" || why="its Python is gone, which was $python"
# The supervisor may have answered it all the same: perhaps that the very call was made before.
echo "outlast did not let this call through: $why. This call was not made now; the same one may be on record as made before:" \
    "make it again to be told, or work on without it." >&2
exit 2
