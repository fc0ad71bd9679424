#!/bin/sh
# activate.sh SOURCE LIVE ROOT UNITS: make live what lies in SOURCE: settings, credentials, units, the environment.
# Nothing is restarted. Settings and units are copied whole, so that none of the other release's stays; the symlink
# is replaced in one step, so that there is always an environment behind it.
set -eu
source=$1 live=$2 root=$3 units=$4
release=$(cat "$source/release")
test -e "$root/versions/$release/.complete" || { echo "cannot activate $release: its environment is not complete" >&2; exit 1; }

if [ -d "$live/systemd" ]; then
    (cd "$live/systemd" && find . -type f) | while read -r unit; do
        [ -e "$source/systemd/$unit" ] || rm -f "$units/$unit"
    done
fi
rm -rf "$live.new"
cp -a "$source" "$live.new"
rm -rf "$live"
mv -T "$live.new" "$live"
(cd "$live/systemd" && find . -type f) | while read -r unit; do
    install -D -m 0644 "$live/systemd/$unit" "$units/$unit"
done
ln -sfn "versions/$release" "$root/current.new"
mv -T "$root/current.new" "$root/current"
echo "$release"
