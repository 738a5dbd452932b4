#!/bin/sh
# says.sh PATTERN PROGRAM [arguments]: the program ends with code 0 and one of its lines matches.
# ctest's PASS_REGULAR_EXPRESSION looks at the output alone: a crash after the last line would pass.
pattern=$1
shift
said=$("$@" 2>&1)
code=$?
printf '%s\n' "$said"
[ $code -eq 0 ] || { echo "says: exit code $code"; exit 1; }
printf '%s\n' "$said" | grep -Eq -e "$pattern" || { echo "says: no line matches $pattern"; exit 1; }
