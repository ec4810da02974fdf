#!/bin/sh
# two_nodes.sh FOLDER COMMAND...: run a command on the first of two nodes, with two networks between them.
# Called in new namespaces: unshare --user --map-root-user --net --uts --mount --pid --fork --mount-proc.
# FOLDER/agent starts commands on the second node, as an mpirun's ssh would.
set -e
folder=$1
shift
hostname node1
ip link set lo up
unshare --net --uts sh -c 'hostname node2; ip link set lo up; echo $$ >"$0/pid.tmp"; mv "$0/pid.tmp" "$0/pid"
  exec sleep 1000' "$folder" >/dev/null 2>&1 &
until test -s "$folder/pid"; do sleep 0.1; done
other=$(cat "$folder/pid")
number=76
for name in eth0 ib0; do
  ip link add $name type veth peer name $name netns "$other"
  ip addr add 10.$number.0.1/24 dev $name
  ip link set $name up
  nsenter --target "$other" --net ip addr add 10.$number.0.2/24 dev $name
  nsenter --target "$other" --net ip link set $name up
  number=$((number + 1))
done
printf '#!/bin/sh\nshift\nexec nsenter --target %s --net --uts -- sh -c "$*"\n' "$other" >"$folder/agent"
chmod +x "$folder/agent"
"$@"
