#!/bin/sh
# take-packages.sh HOME: hard links to the packages of a complete environment with the same lock and Python.
# An upgrade that leaves the lock alone then takes seconds and no disk. Files of an environment are only ever replaced,
# never written into, so that none is changed through a link. Prints "taken from …" or "none".
set -eu
home=$1
python=$(basename "$(dirname "$home"/lib/python3.*/site-packages)")
for stamp in "$(dirname "$home")"/*/.complete; do
    other=$(dirname "$stamp")
    if [ -e "$stamp" ] && [ -d "$other/lib/$python" ] && cmp -s "$other/runtime.txt" "$home/runtime.txt"; then
        rm -rf "$home/lib/$python/site-packages"
        cp -al "$other/lib/$python/site-packages" "$home/lib/$python/site-packages"
        echo "taken from $other"
        exit 0
    fi
done
echo none
