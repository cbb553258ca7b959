#!/usr/bin/env bash
# cluster: a real Slurm cluster of emulated nodes on one Debian 12 machine.
#
# Every node is a set of namespaces (pid, net, mount, uts, ipc) nested in those
# of a "head" node. Killing a node's PID 1 kills all of it at once, as a power
# cut does; killing the head's PID 1 takes the whole cluster with it, so nothing
# can be left behind. No interface, mount or namespace name is made on the host.
# See README.md beside this file.
set -euo pipefail

ID=${CLUSTER_ID:-0}                              # several clusters can coexist
STATE=${CLUSTER_RUN:-/run/slurm-testbed/$ID}     # config, pids, logs
DATA=${CLUSTER_DATA:-/tmp/slurm-testbed-$ID}     # pfs and node-local files
NET=${CLUSTER_NET:-10.77.0}                      # /24 inside the namespaces
CPUS=${CLUSTER_CPUS:-4}                          # declared CPUs per node
GPUS=${CLUSTER_GPUS:-2}                          # declared (fake) GPUs per node
SLURMD_TIMEOUT=${CLUSTER_SLURMD_TIMEOUT:-5}     # s until a silent node is DOWN
KILL_WAIT=${CLUSTER_KILL_WAIT:-5}                # s between SIGTERM and SIGKILL
NVME=${CLUSTER_NVME:-dir}                        # dir, or a tmpfs size such as 2g
PRIVATE_TMP=${CLUSTER_PRIVATE_TMP:-1}            # 0: the nodes share the host's /tmp
SELF=$(readlink -f "${BASH_SOURCE[0]}")

# package:file it must bring
NEEDS="slurmctld:/usr/sbin/slurmctld slurmd:/usr/sbin/slurmd slurm-client:/usr/bin/srun
slurm-wlm-basic-plugins:/usr/lib/x86_64-linux-gnu/slurm-wlm/mpi_pmix.so munge:/usr/sbin/munged
openmpi-bin:/usr/bin/mpirun.openmpi libopenmpi-dev:/usr/bin/mpicc.openmpi
mpich:/usr/bin/mpiexec.mpich libmpich-dev:/usr/bin/mpicc.mpich
libpmi2-0:/usr/lib/x86_64-linux-gnu/libpmi2.so.0
iproute2:/sbin/ip util-linux:/usr/bin/nsenter procps:/usr/bin/pgrep gcc:/usr/bin/gcc"

say() { echo "cluster: $*" >&2; }
die() { say "error: $*"; exit 1; }

usage() {
  cat <<'U'
usage: cluster VERB ...
  up [N]                  start a head and N compute nodes n1..nN (default 4)
  down [--keep]           stop everything; --keep leaves the data directory
  keep [N]                up, print "ready", then down when standard input ends: a
                          test holds the other end, so its death ends the cluster
  status                  nodes as the testbed and as Slurm see them
  exec CMD...             run CMD on the head (srun, sbatch, mpirun, a shell...)
  srun|sbatch|salloc|squeue|sinfo|scontrol|scancel ARGS...    same as exec VERB ARGS
  run-on NODE CMD...      run CMD on NODE, outside Slurm
  kill [MODE] NODE        MODE: --power (default) link cut first, then all of the
                          node dies: peers see silence; node-local files are wiped
                          --keep-local  same, node-local files survive
                          --crash       link stays up: peers see connections close
                          --procs       only jobs: slurmstepd and ranks die, slurmd stays
                          --slurmd      only slurmd dies, ranks go on
  revive [--fresh] NODE   boot a dead NODE again; --fresh wipes its local files
  cut NODE | heal NODE    network partition on, off (processes go on)
  freeze NODE | thaw NODE SIGSTOP / SIGCONT all processes of NODE
  aim KIND NODE...        get ready to let NODEs die (KIND: power, crash, procs, cut or
                          freeze), print "ready", do it within milliseconds to all
                          of them when standard input says "go", print "done"
  wait NODE STATE [S]     until Slurm says STATE: up (usable), idle, down... (default 120 s)
  rsh NODE CMD...         remote shell for mpirun/mpiexec (valid on the head only)
  path pfs|state|log|nvme NODE   directories as the host sees them
  log NODE|head           print slurmd's or slurmctld's log
U
}

# ---- processes we own: recorded as "pid starttime", checked before every kill
starttime() { local s f; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 1; read -ra f <<<"${s##*) }"; echo "${f[19]}"; }
alive() { # FILE -> pid on stdout when the recorded process lives
  local pid st; [[ -r $1 ]] || return 1
  read -r pid st <"$1" || return 1
  [[ $(starttime "$pid" || true) == "$st" ]] || return 1
  echo "$pid"
}
head_pid() { alive "$STATE/head.pid" || die "the cluster is not up (run: $SELF up)"; }
names() { cat "$STATE/names" 2>/dev/null || true; }
need_node() { names | grep -qx -- "${1:-none given}" || die "no node '${1:-}' (have: $(names | tr '\n' ' '))"; }
node_pid() {
  head_pid >/dev/null
  need_node "$1"
  alive "$STATE/$1.pid" || die "node $1 is dead (run: $SELF revive $1)"
}
in_head() { nsenter -t "$(head_pid)" -m -u -i -n -p -- "$@"; }
in_headnet() { nsenter -t "$(head_pid)" -n -- "$@"; }   # host's /proc and pids
addr() { if [[ $1 == head ]]; then echo "$NET.1"; else echo "$NET.$((10 + ${1#n}))"; fi; }
wait_gone() { # PID STARTTIME
  local i; for ((i = 0; i < 500; i++)); do
    [[ $(starttime "$1" || true) == "$2" ]] || return 0; sleep 0.01; done; return 1; }

packages() {
  local miss=() n; for n in $NEEDS; do [[ -e ${n#*:} ]] || miss+=("${n%%:*}"); done
  ((${#miss[@]})) || return 0
  say "installing Debian packages: ${miss[*]}"
  command -v apt-get >/dev/null || die "no apt-get: install ${miss[*]} by hand"
  local log; log=$(mktemp)
  # RUNLEVEL=1 keeps invoke-rc.d from starting the packages' own daemons
  if ! { DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get -o DPkg::Lock::Timeout=300 -y --no-install-recommends install "${miss[@]}" ||
         { apt-get -o DPkg::Lock::Timeout=300 update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get \
             -o DPkg::Lock::Timeout=300 -y --no-install-recommends install "${miss[@]}"; }; } >"$log" 2>&1; then
    tail -5 "$log" >&2; die "apt-get failed (log: $log)"
  fi
  rm -f "$log"
}

config() { # N
  local i n=$1
  mkdir -p "$STATE"/{etc,log,bin,lib,spool} "$DATA"/{pfs,nodes}
  touch "$STATE/.slurm-testbed" "$DATA/.slurm-testbed"
  chmod 755 "$STATE" "$DATA"; chmod 1777 "$DATA/pfs"
  dd if=/dev/urandom of="$STATE/munge.key" bs=128 count=1 status=none; chmod 400 "$STATE/munge.key"
  { echo "127.0.0.1 localhost"; echo "$(addr head) head"
    for ((i = 1; i <= n; i++)); do echo "$(addr n$i) n$i"; done; } >"$STATE/etc/hosts"
  echo "hosts: files" >"$STATE/etc/nsswitch.tail"
  {
    grep -v '^hosts:' /etc/nsswitch.conf 2>/dev/null || true
    cat "$STATE/etc/nsswitch.tail"
  } >"$STATE/etc/nsswitch.conf"
  : >"$STATE/names"; for ((i = 1; i <= n; i++)); do echo "n$i" >>"$STATE/names"; done
  mkdir -p "$STATE/etc/slurm"
  cat >"$STATE/etc/slurm/slurm.conf" <<C
ClusterName=testbed
SlurmctldHost=head($(addr head))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job waits cred_expire before it may start again (default 120 s)
AuthInfo=cred_expire=${CLUSTER_REQUEUE_WAIT:-8}
CredType=cred/munge
# no cgroups, no cpu binding: more tasks than real cores
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=${CLUSTER_MPI:-none}
MailProg=/bin/true
# failure detection: the controller pings every SlurmdTimeout/3
SlurmdTimeout=$SLURMD_TIMEOUT
SlurmctldTimeout=30
MessageTimeout=5
TCPTimeout=1
BatchStartTimeout=10
KillWait=$KILL_WAIT
UnkillableStepTimeout=20
InactiveLimit=0
MinJobAge=300
ReturnToService=2
JobRequeue=1
KillOnBadExit=0
TreeWidth=64
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=5,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# preemption also sends the signal asked for by --signal, at the start of the grace time
SlurmctldParameters=preempt_send_user_signal
PropagateResourceLimits=NONE
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$STATE/log/jobcomp
StateSaveLocation=$STATE/spool
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdLogFile=$STATE/log/slurmd-%n.log
SlurmctldDebug=${CLUSTER_DEBUG:-info}
SlurmdDebug=${CLUSTER_DEBUG:-info}
C
  local gres=""
  echo CgroupPlugin=cgroup/v1 >"$STATE/etc/slurm/cgroup.conf"   # unused, but autodetection would fail
  if ((GPUS > 0)); then
    echo "GresTypes=gpu" >>"$STATE/etc/slurm/slurm.conf"
    gres=" Gres=gpu:$GPUS"
    mkdir "$STATE/gpu"           # copies of /dev/null: slurmd hands out their indices
    for ((i = 0; i < GPUS; i++)); do
      mknod "$STATE/gpu/gpu$i" c 1 3
      echo "Name=gpu File=$STATE/gpu/gpu$i"
    done >"$STATE/etc/slurm/gres.conf"
  fi
  for ((i = 1; i <= n; i++)); do
    echo "NodeName=n$i NodeAddr=$(addr "n$i") CPUs=$CPUS RealMemory=1000$gres State=UNKNOWN"
  done >>"$STATE/etc/slurm/slurm.conf"
  cat >>"$STATE/etc/slurm/slurm.conf" <<C
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO PriorityTier=1 GraceTime=${CLUSTER_GRACE:-15}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE OverSubscribe=NO PriorityTier=10 PreemptMode=OFF
C
  # remote shell for OpenMPI (plm_rsh_agent) and MPICH (hydra launcher-exec)
  printf '#!/bin/sh\nCLUSTER_RUN=%q exec bash %q rsh "$@"\n' "$STATE" "$STATE/bin/cluster" >"$STATE/bin/rsh"
  cp "$SELF" "$STATE/bin/cluster"; chmod 755 "$STATE/bin/rsh" "$STATE/bin/cluster"
  # Debian's MPICH 4.0.2 (ch4:ucx) deadlocks in MPI_Finalize over TCP: ranks wait in a
  # PMI barrier without progress while others flush (pmodels/mpich PR 6596). Skipping
  # the disconnect is enough; the processes are about to exit.
  echo 'void *ucp_disconnect_nb(void *ep) { (void)ep; return 0; }' |
    gcc -O2 -shared -fPIC -x c -o "$STATE/lib/mpich-finalize.so" - || die "gcc cannot build the MPICH shim"
  for ((i = 1; i <= n; i++)); do echo "n$i slots=$CPUS"; done >"$STATE/etc/hosts.openmpi"
  for ((i = 1; i <= n; i++)); do echo "n$i:$CPUS"; done >"$STATE/etc/hosts.mpich"
  cat >"$STATE/env" <<C
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent=$STATE/bin/rsh OMPI_MCA_plm_rsh_no_tree_spawn=1
export TESTBED_RSH=$STATE/bin/rsh   # not HYDRA_LAUNCHER_EXEC: it breaks mpiexec inside a Slurm job
export UCX_TLS=tcp,self,sm UCX_NET_DEVICES=eth0 TESTBED_MPICH_PRELOAD=$STATE/lib/mpich-finalize.so
export TESTBED_STATE=$STATE TESTBED_OPENMPI_HOSTS=$STATE/etc/hosts.openmpi TESTBED_MPICH_HOSTS=$STATE/etc/hosts.mpich
C
}

# ---- PID 1 of the head or of a node (runs inside the fresh namespaces)
init() { # NAME
  local name=$1 pid i; shift
  read -r pid _ </proc/self/stat            # the host's /proc still: the host's pid
  local d="$DATA/nodes/$name"; mkdir -p "$d"/{nvme,tmp}; chmod 1777 "$d"/{nvme,tmp}
  hostname "$name"
  # mounts: /mnt/pfs shared; /mnt/nvme, /tmp, /run, /dev/shm private
  mount -t tmpfs -o size=1m,mode=755 testbed /mnt
  mkdir /mnt/{pfs,nvme,.state,.tmp}
  mount --bind "$DATA/pfs" /mnt/pfs
  if [[ $NVME == dir ]]; then
    mount --bind "$d/nvme" /mnt/nvme
  else
    mount -t tmpfs -o "size=$NVME,mode=1777" nvme /mnt/nvme
  fi
  mount --bind "$d/tmp" /mnt/.tmp
  mount --bind "$STATE" /mnt/.state
  mount -t tmpfs -o size=512m,mode=755 run /run   # PMIx keeps 16 MB for each step there
  [[ $name == head ]] || mount -t tmpfs -o size=1m,mode=755 hidden "$DATA"   # not the neighbours' files
  if [[ $name != head && $PRIVATE_TMP == 1 ]]; then mount --move /mnt/.tmp /tmp; else umount /mnt/.tmp; fi
  mkdir -p "$STATE"; mount --move /mnt/.state "$STATE"
  rmdir /mnt/.state /mnt/.tmp
  mount -t tmpfs -o size=1g,mode=1777 shm /dev/shm
  mkdir -p /etc/slurm
  mount --bind "$STATE/etc/slurm" /etc/slurm
  mount --bind "$STATE/etc/hosts" /etc/hosts
  mount --bind "$STATE/etc/nsswitch.conf" /etc/nsswitch.conf
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys          # shows this network namespace; no cgroups below it
  mkdir -p /run/munge /run/slurmd /run/lock; chmod 755 /run/munge /run/slurmd
  ip link set lo up
  if [[ $name == head ]]; then
    ip link add br0 type bridge; ip link set br0 up; ip addr add "$NET.1/24" dev br0
  fi
  echo "$pid" "$START" >"$STATE/$name.pid.new"; mv "$STATE/$name.pid.new" "$STATE/$name.pid"
  if [[ $name != head ]]; then
    for ((i = 0; i < 500; i++)); do [[ -e /sys/class/net/eth0 ]] && break; sleep 0.02; done
    ip link set eth0 up; ip addr add "$(addr "$name")/24" dev eth0
  fi
  munged --key-file="$STATE/munge.key" --log-file="$STATE/log/munged-$name.log" --pid-file=/run/munge/munged.pid \
    --seed-file=/run/munge/seed --socket=/run/munge/munge.socket.2
  if [[ $name == head ]]; then
    slurmctld -D -i >>"$STATE/log/slurmctld.out" 2>&1 &
  else
    slurmd -D >>"$STATE/log/slurmd-$name.out" 2>&1 &
  fi
  set +e
  while :; do sleep 86400 & wait $!; done    # bash reaps orphans meanwhile
}

spawn() { # NAME: boot a node or the head, wait until its init recorded itself
  local name=$1 i pre=() out="$STATE/log/init-$1.log"
  rm -f "$STATE/$name.pid"
  # compute nodes live in the head's pid namespace (nested), host's mounts to begin with
  [[ $name == head ]] || pre=(nsenter -t "$(head_pid)" -p --)
  setsid "${pre[@]}" unshare --fork --pid --net --mount --uts --ipc --propagation private \
    bash "$STATE/bin/cluster" _init "$name" </dev/null >>"$out" 2>&1 9>&- &
  local bg=$!
  for ((i = 0; i < 500; i++)); do
    [[ -e $STATE/$name.pid ]] && break
    [[ -d /proc/$bg ]] || { tail -3 "$out" >&2; die "$name did not boot (log: $out)"; }
    sleep 0.02
  done
  alive "$STATE/$name.pid" >/dev/null || { tail -3 "$out" >&2; die "$name did not boot (log: $out)"; }
  [[ $name == head ]] && return 0
  awk '/^NSpid:/ {print $3}' "/proc/$(node_pid "$name")/status" >"$STATE/$name.headpid"   # for rsh
  wire "$name"
}
wire() { # NAME: veth between the head's bridge and the node
  local pid mac; pid=$(node_pid "$1")
  # A node that boots again has the hardware address that its neighbours remember, as real ones do: with another one
  # they reach it only when they ask again, up to a quarter of a minute later.
  printf -v mac '02:00:00:00:00:%02x' $((10 + ${1#n}))
  in_headnet ip link del "$1" 2>/dev/null || true
  in_headnet ip link add "$1" type veth peer name eth0 address "$mac" netns "$pid"
  in_headnet ip link set "$1" master br0 up
}

idle_count() {
  { in_head sinfo -h -N -p main -o '%N %T' 2>/dev/null || true; } |
    grep -Ec ' (idle|mixed|allocated)$' || true
}
wait_nodes() { # COUNT SECONDS
  local t=$((SECONDS + $2))
  while (( $(idle_count) < $1 )); do
    ((SECONDS < t)) || {
      in_head sinfo -N >&2 || true
      die "only $(idle_count) of $1 nodes ready after $2 s (see: $SELF log head)"
    }
    sleep 0.2
  done
}

# we only remove directories we made
ours() {
  [[ ! -e $1 || -e $1/.slurm-testbed || -z $(ls -A "$1") ]] ||
    die "$1 exists and is not the testbed's: not touching it"
}
wipe() { ours "$1"; rm -rf "$1"; }

lock() {
  mkdir -p "$(dirname "$STATE")"
  exec 9>"$STATE.lock"
  flock -w 60 9 || die "another 'cluster' command holds $STATE.lock"
}

up() {
  local n=${1:-4} i
  [[ $n =~ ^([1-9]|[12][0-9]|3[0-2])$ ]] || die "up: node count must be 1..32, not '$n'"
  lock
  if alive "$STATE/head.pid" >/dev/null; then
    [[ $(names | wc -l) == "$n" ]] || die "a cluster of $(names | wc -l) nodes is up already (run: $SELF down)"
    say "already up"; wait_nodes 1 240; return 0
  fi
  packages
  wipe "$STATE"; ours "$DATA"               # data kept by 'down --keep' stays
  config "$n"
  trap 'rc=$?
    if p=$(alive "$STATE/head.pid"); then kill -9 "$p"; say "boot failed, stopped (logs: $STATE/log)"; fi
    exit $rc' EXIT
  spawn head
  for i in $(names); do spawn "$i"; done
  wait_nodes "$n" 240
  trap - EXIT
  say "up: $n nodes, pfs=$DATA/pfs"
}

down() {
  local keep=0; [[ ${1:-} == --keep ]] && keep=1
  lock
  local pid st n
  if pid=$(alive "$STATE/head.pid"); then
    st=$(starttime "$pid")
    kill -9 "$pid"                            # nested pid namespaces die with it
    wait_gone "$pid" "$st" || die "head (pid $pid) does not die"
  fi
  wipe "$STATE"; ((keep)) || wipe "$DATA"
  rm -f "$STATE.lock"; rmdir "$(dirname "$STATE")" 2>/dev/null || true
  say "down"
}

keep() {
  local rc=0
  trap '' INT TERM HUP            # the owner's end is told by the pipe
  ( up "${1:-4}" ) || rc=$?
  if ((rc == 0)); then echo ready; cat >/dev/null; fi
  down
  return $rc
}

# run in the namespaces of a recorded init, forwarding signals to the command
enter() { # PID CMD...
  local pid=$1 c rc=0 wd=$PWD; shift
  [[ $wd/ == "$DATA/pfs/"* ]] && wd=/mnt/pfs${wd#"$DATA/pfs"}
  # shellcheck disable=SC2016 # expands inside
  nsenter -t "$pid" -m -u -i -n -p -- bash -c '
    d=$1 e=$2; shift 2; . "$e"; cd "$d" 2>/dev/null || { echo "cluster: no $d on $(hostname), using /" >&2; cd /; }
    exec "$@"' _ "$wd" "$STATE/env" "$@" <&0 9>&- &
  c=$!
  local s
  # shellcheck disable=SC2064 # the names are known now
  for s in INT TERM HUP USR1 USR2 QUIT; do trap "pkill -$s -P $c || true" "$s"; done
  while :; do rc=0; wait "$c" || rc=$?; ((rc > 128)) && [[ -d /proc/$c ]] && continue; break; done
  return $rc
}

kill_node() {
  local mode=--power n="" pid st script
  for st in "$@"; do case $st in --*) mode=$st ;; *) n=$st ;; esac; done
  pid=$(node_pid "$n"); st=$(starttime "$pid")
  case $mode in
  --procs)
    # shellcheck disable=SC2016 # expands inside
    script='for p in $(pgrep -x slurmstepd); do pkill -9 -P $p; kill -9 $p; done'
    nsenter -t "$pid" -m -p -- bash -c "$script" || true; return ;;
  --slurmd) nsenter -t "$pid" -m -p -- pkill -9 -x slurmd || true; return ;;
  --power | --keep-local) in_headnet ip link set "$n" down ;;
  --crash) ;;
  *) die "kill: unknown mode $mode" ;;
  esac
  kill -9 "$pid"; bury "$n" "$pid" "$st"
  [[ $mode == --keep-local ]] || rm -rf "$DATA/nodes/$n"
}

# A shell per node waits in the node's namespaces, so that nothing has to be looked
# up when the moment comes. Without the word it ends and does nothing.
aim() {
  local kind=$1 n pid fd script word fds=() pids=() dead=(); shift
  local -A inits
  # shellcheck disable=SC2016 # expands inside
  case $kind in
  power) script='ip link set "$1" down; kill -9 "$2"' ;;
  crash) script='kill -9 "$2"' ;;
  cut) script='ip link set "$1" down' ;;
  freeze) script='kill -STOP -1' ;;      # all of this pid namespace but this shell and init
  procs) script='for p in $(pgrep -x slurmstepd); do pkill -9 -P $p; kill -9 $p; done' ;;
  *) die "aim: unknown kind $kind" ;;
  esac
  # shellcheck disable=SC2016 # expands inside
  script='read -r word && [[ $word == go ]] || exit 0; '$script
  for n in "$@"; do
    pid=$(node_pid "$n"); inits[$n]="$pid $(starttime "$pid")"
    exec {fd}> >(
      for other in "${fds[@]}"; do exec {other}>&-; done
      case $kind in
      freeze) exec nsenter -t "$pid" -p -- bash -c "$script" ;;
      procs) exec nsenter -t "$pid" -m -p -- bash -c "$script" ;;
      *) exec nsenter -t "$(head_pid)" -n -- bash -c "$script" _ "$n" "$pid" ;;
      esac
    )
    fds+=("$fd"); pids+=($!)
  done
  echo ready
  read -r word || word=
  [[ $word == go ]] || return 0
  for fd in "${fds[@]}"; do echo go >&"$fd"; done
  for pid in "${pids[@]}"; do
    while kill -0 "$pid" 2>/dev/null; do sleep 0.005; done
  done
  if [[ $kind == power || $kind == crash ]]; then dead=("$@"); fi
  for n in "${dead[@]}"; do
    # shellcheck disable=SC2086 # pid and start time
    bury "$n" ${inits[$n]}; rm -rf "$DATA/nodes/$n"
  done
  echo "done"
}

bury() { # NODE PID STARTTIME: wait for its end, forget it
  wait_gone "$2" "$3" || die "node $1 (pid $2) does not die"
  rm -f "$STATE/$1.pid" "$STATE/$1.headpid"
  in_headnet ip link del "$1" 2>/dev/null || true
}

revive() {
  local fresh=0 n; [[ ${1:-} == --fresh ]] && { fresh=1; shift; }
  n=${1:-}; need_node "$n"; head_pid >/dev/null
  alive "$STATE/$n.pid" >/dev/null && die "node $n is alive"
  ((fresh)) && rm -rf "$DATA/nodes/$n"
  spawn "$n"
  wait_state "$n" up 120
}
slurm_state() { { in_head sinfo -h -n "$1" -p main -o %T 2>/dev/null || true; }; }
wait_state() { # NODE up|STATE SECONDS; a trailing * (not responding) counts only for STATE
  local st t=$((SECONDS + $3)); need_node "$1"; head_pid >/dev/null
  while :; do
    st=$(slurm_state "$1")
    if [[ $2 == up ]]; then [[ $st =~ ^(idle|mixed|allocated|completing)$ ]] && return 0
    else [[ ${st%\*} == "$2" ]] && return 0; fi
    ((SECONDS < t)) || die "node $1 is '$st', not '$2', after $3 s"
    sleep 0.1
  done
}

rsh() { # as ssh: [-x] [-n] [-l user] HOST CMD...; runs inside the head's namespaces
  while [[ ${1:-} == -* ]]; do [[ $1 == -[lpo] ]] && shift; shift; done
  local n=${1:-} p; shift || die "rsh: no node"
  p=$(cat "$STATE/$n.headpid" 2>/dev/null) || { say "rsh: no node '$n'"; exit 255; }
  [[ -e $STATE/$n.pid && $(nsenter -t "$p" -u hostname 2>/dev/null) == "$n" ]] || {
    say "rsh: $n: no route to host"
    exit 255
  }
  # shellcheck disable=SC2016 # expands inside
  exec nsenter -t "$p" -m -u -i -n -p -- bash -c 'cd "$1" 2>/dev/null || cd /; shift; exec bash -c "$*"' _ "$PWD" "$@"
}

pids_of() { # NODE: host pids of all its processes but its init
  local p ns init; init=$(node_pid "$1"); ns=$(readlink "/proc/$init/ns/pid")
  for p in /proc/[0-9]*; do
    [[ ${p#/proc/} != "$init" && $(readlink "$p/ns/pid" 2>/dev/null) == "$ns" ]] && echo "${p#/proc/}"; done; true
}

signal_all() { # SIGNAL NODE: to all its processes but its init; those that end meanwhile need none
  local p
  for p in $(pids_of "$2"); do
    kill "-$1" "$p" 2>/dev/null || [[ ! -e /proc/$p ]] || die "$2: cannot send $1 to process $p"
  done
}

status() {
  local n p
  head_pid >/dev/null
  printf '%-6s %-8s %-9s %-5s %s\n' NODE INIT LINK PROCS SLURM
  for n in $(names); do
    if p=$(alive "$STATE/$n.pid"); then
      printf '%-6s %-8s %-9s %-5s ' "$n" "$p" \
        "$(in_headnet ip -br link show "$n" 2>/dev/null | awk '{print $2}')" "$(pids_of "$n" | wc -l)"
    else printf '%-6s %-8s %-9s %-5s ' "$n" dead - 0; fi
    in_head sinfo -h -n "$n" -p main -o '%T %E' || echo '?'
  done
  in_head squeue
}

main() {
  local verb=${1:-}; [[ $verb ]] || { usage >&2; exit 2; }; shift
  [[ $(id -u) == 0 || $verb == *help || $verb == -h ]] || die "must be root"
  case $verb in
  up) up "$@" ;;
  down) down "$@" ;;
  keep) keep "$@" ;;
  status) status ;;
  exec) (($#)) || die "exec: no command"; local hp; hp=$(head_pid); enter "$hp" "$@" ;;
  srun | sbatch | salloc | squeue | sinfo | scontrol | scancel | sattach | sbcast)
    local hp; hp=$(head_pid); enter "$hp" "$verb" "$@" ;;
  run-on) local np; np=$(node_pid "${1:-}"); shift; (($#)) || die "run-on: no command"; enter "$np" "$@" ;;
  kill) kill_node "$@" ;;
  revive) revive "$@" ;;
  cut) node_pid "${1:-}" >/dev/null; in_headnet ip link set "$1" down ;;
  heal) node_pid "${1:-}" >/dev/null; in_headnet ip link set "$1" up ;;
  aim) (($# >= 2)) || die "aim: KIND NODE..."; aim "$@" ;;
  freeze) signal_all STOP "${1:-}" ;;
  thaw) signal_all CONT "${1:-}" ;;
  wait) (($# >= 2)) || die "wait: NODE STATE [SECONDS]"; wait_state "$1" "$2" "${3:-120}" ;;
  log)
    if [[ ${1:-} == head ]]; then
      cat "$STATE/log/slurmctld.log"
    else
      need_node "${1:-}"
      cat "$STATE/log/slurmd-$1.log"
    fi
    ;;
  path) case ${1:-} in pfs) echo "$DATA/pfs" ;; state) echo "$STATE" ;; log) echo "$STATE/log" ;;
        nvme) need_node "${2:-}"; echo "$DATA/nodes/$2/nvme" ;; *) die "path: pfs, state, log or nvme NODE" ;; esac ;;
  rsh) rsh "$@" ;;
  _init) local me; read -r me _ </proc/self/stat; START=$(starttime "$me"); init "$@" ;;
  -h | --help | help) usage ;;
  *) usage >&2; exit 2 ;;
  esac
}
main "$@"
