#!/bin/sh
# two_nodes.sh FOLDER grid_engine.sh FOLDER: a Grid Engine of Debian over the two nodes until the end of the input.
# FOLDER/user starts a command as its ordinary user on the first node, whose administrator that user is, too.
set -e
folder=$1
root=$folder/sge
common=$root/default/common
programs=/usr/lib/gridengine
shared=/usr/share/gridengine
mkdir -p "$common" "$root/bin" "$root/utilbin" "$folder/qmaster/job_scripts"
for name in execd spool home tmp1 tmp2; do mkdir "$folder/$name"; done
for name in bin utilbin; do ln -s $programs "$root/$name/$($shared/util/arch)"; done

printf '127.0.0.1 localhost\n10.76.0.1 node1\n10.76.0.2 node2\n' >"$folder/hosts"
printf 'root:x:0:0::/root:/bin/sh\noperator:x:1000:1000::%s/home:/bin/bash\n' "$folder" >"$folder/passwd"
printf 'root:x:0:\noperator:x:1000:\n' >"$folder/group"
for name in hosts passwd group; do mount --bind "$folder/$name" /etc/$name; done

# Jobs have login shells, in which Debian's /etc/profile sets the PATH.
printf "PATH='%s:%s'\n" $programs "$PATH" >"$folder/home/.profile"

cat >"$folder/user" <<END
#!/bin/sh
export PATH='$programs':"\$PATH" SGE_ROOT='$root' SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 HOME='$folder/home' USER=operator
exec unshare --user --map-user=1000 --map-group=1000 -- "\$@"
END
chmod +x "$folder/user"
cat >"$common/bootstrap" <<END
admin_user operator
default_domain none
ignore_fqdn true
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params $folder/spool
binary_path $root/bin
qmaster_spool_dir $folder/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
echo node1 >"$common/act_qmaster"
sed "s#^execd_spool_dir.*#execd_spool_dir $folder/execd#" $shared/default-configuration >"$folder/conf"

# In the foreground: they end with the namespace of processes.
export SGE_ND=1
spool=$programs/spooldefaults
"$folder/user" $programs/spoolinit berkeleydb libspoolb "$folder/spool" init
"$folder/user" $spool configuration "$folder/conf"
"$folder/user" $spool complexes $shared/util/resources/centry
"$folder/user" $spool usersets $shared/util/resources/usersets
"$folder/user" $spool managers operator

# wait_for COMMAND...: until it succeeds; its last words if it never does.
wait_for() {
  tries=0
  until "$@" >"$folder/answer" 2>&1; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ]; then cat "$folder/answer" "$folder"/*.log >&2; exit 1; fi
    sleep 0.2
  done
}

"$folder/user" $programs/sge_qmaster >"$folder/qmaster.log" 2>&1 &
wait_for "$folder/user" qconf -sh
for node in node1 node2; do
  wait_for "$folder/user" qconf -ah $node
  wait_for "$folder/user" qconf -as $node
done
"$folder/user" $programs/sge_execd >"$folder/node1.log" 2>&1 &
"$folder/agent" node2 "$folder/user" $programs/sge_execd >"$folder/node2.log" 2>&1 &

cat >"$folder/pe" <<END
pe_name            mpi
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    \$fill_up
control_slaves     TRUE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
END
"$folder/user" qconf -Ap "$folder/pe"
# change WHAT SCRIPT: edit what `qconf WHAT` shows, by a script of sed.
change() {
  printf '#!/bin/sh\nexec sed -i "%s" "$1"\n' "$2" >"$folder/editor"
  chmod +x "$folder/editor"
  # shellcheck disable=SC2086
  "$folder/user" env EDITOR="$folder/editor" qconf $1
}
change -msconf 's/^schedule_interval .*/schedule_interval 0:0:2/; s/^\(flush_[a-z]*_sec\) .*/\1 1/'
change -mc '\$a exclusive excl BOOL EXCL YES YES 0 0'
# No load keeps a node from jobs, and the shell is upstream's own.
change '-aq all.q' "s/^hostlist .*/hostlist node1 node2/; s/^load_thresholds .*/load_thresholds NONE/
  s/^notify .*/notify 00:20:00/; s/^pe_list .*/pe_list mpi/; s#^shell .*#shell /bin/csh#
  s#^tmpdir .*#tmpdir $folder/tmp1,[node2=$folder/tmp2]#"
for node in node1 node2; do
  wait_for "$folder/user" qconf -rattr exechost complex_values exclusive=true $node
done
echo ready
cat
