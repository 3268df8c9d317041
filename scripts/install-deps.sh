#!/usr/bin/env bash
# Installs the Debian packages (release 12 was tried) that the demo, the tests, the bench, its peers or the conformance suites need, and nothing that is there already.
#
#   scripts/install-deps.sh [demo|test|bench|peers|switch|packages|kubernetes|conformance|mpi|ycsb]      (no argument: demo, test and bench)
#
# Needs root, or sudo without a password; without either it says what is missing. Reads nothing from standard input.
# A server that comes with a package installed here (nginx, redis, memcached, caddy, prometheus) is neither started nor left enabled.
set -euo pipefail

group=${1:-all}
case $group in
    demo|test|bench|peers|switch|packages|kubernetes|conformance|mpi|ycsb|all) ;;
    *) echo "usage: $0 [demo|test|bench|peers|switch|packages|kubernetes|conformance|mpi|ycsb]" >&2; exit 2 ;;
esac

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

# Each entry is package=what to look for: a command, an absolute path, or nothing (ask dpkg).
build=(gcc=gcc libc6-dev=/usr/include/stdio.h)
servers=(nginx-light=nginx redis-server=redis-server redis-tools=redis-benchmark
         memcached=memcached libmemcached-tools=memcaslap wrk=wrk iperf3=iperf3 caddy=caddy
         prometheus=prometheus)
tools=(iproute2=ip util-linux=taskset gdb=gdb)
guests=(qemu-system-x86=qemu-system-x86_64 busybox-static=busybox make=make libelf1=/usr/lib/x86_64-linux-gnu/libelf.so.1)
tests=(dpkg-dev=dpkg-source perl=perl python3=python3 nftables=nft strace=strace netcat-openbsd=nc procps=ps netpipe-tcp=NPtcp dkms=dkms)
packing=(rpm=rpmbuild debhelper=dh dh-dkms=dh_dkms dpkg-dev=dpkg-buildpackage lintian=lintian binutils=objdump python3-venv= musl-tools=musl-gcc)
suites=(dpkg-dev=dpkg-source make=make cmake=cmake perl=perl libevent-dev= golang-go=go
        default-jdk-headless=java maven=mvn procps=ps curl=curl python3=python3
        dnsperf=dnsperf nginx-light=nginx wrk=wrk postgresql= mariadb-server=mariadbd haproxy=haproxy openssh-server=sshd openssh-client=sftp gunicorn=gunicorn nodejs=node
        redis-server=redis-server tcl=tclsh python3-venv=
        apache2=apache2 apache2-utils=ab php-fpm= squid=squid pgbouncer=pgbouncer rsync=rsync
        bind9=named bind9-dnsutils=dig unbound=unbound dnsmasq-base=dnsmasq
        samba=smbd smbclient=smbclient proftpd-core=proftpd lftp=lftp openssl=openssl)
# Servers of tests/servers: without them their scripts say that they were skipped.
more_servers=(mosquitto=mosquitto mosquitto-clients=mosquitto_pub python3-paho-mqtt= rabbitmq-server=/usr/lib/rabbitmq amqp-tools=amqp-publish
              python3-pika= python3-zmq= nbdkit=nbdkit libnbd-bin=nbdcopy nbd-server=nbd-server qemu-utils=qemu-nbd erlang-base=erl
              zookeeper=/usr/share/java/zookeeper.jar python3-kazoo= qemu-system-x86=qemu-system-x86_64)
mpi=(openmpi-bin=mpirun.openmpi libopenmpi-dev=mpicc.openmpi netpipe-openmpi=NPopenmpi libfabric-bin=fi_info)
# What make bench-mpi-programs measures besides.
mpi_programs=(python3-mpi4py= hpcc=hpcc lammps=lmp nwchem-openmpi=nwchem.openmpi)
# What containerd and a cluster take besides the programs that kubernetes/programs.sh builds.
cluster=(redis-server=redis-server redis-tools=redis-benchmark nginx-light=nginx wrk=wrk nftables=nft openssl=openssl
         iproute2=ip util-linux=unshare python3=python3 python3-yaml= python3-venv= musl-tools=musl-gcc libseccomp2=)
ycsb=(memcached=memcached default-jdk-headless=javac maven=mvn)
# Not in every release: without them the tests that need them say that they were skipped.
optional=()

case $group in
    demo)  wanted=("${build[@]}" "${servers[@]}" "${tools[@]}" "${guests[@]}") ;;
    bench) wanted=("${build[@]}" "${tools[@]}") optional=(valgrind=valgrind) ;;
    mpi)   wanted=("${build[@]}" "${tools[@]}" "${mpi[@]}" "${mpi_programs[@]}") ;;
    kubernetes) wanted=("${build[@]}" "${cluster[@]}") ;;
    ycsb)  wanted=("${build[@]}" "${tools[@]}" "${ycsb[@]}") ;;
    peers)
        wanted=("${build[@]}" "${tools[@]}")
        optional=(linux-libc-dev=/usr/include/linux/bpf.h ucx-utils=ucx_perftest g++=c++
                  libboost-dev=/usr/include/boost/interprocess/ipc/message_queue.hpp) ;;
    packages)
        wanted=("${build[@]}" "${packing[@]}")
        optional=(mmdebstrap=mmdebstrap)
        # For aarch64, by a cross build.
        [[ $(uname -m) != x86_64 ]] || optional+=(
            binutils-aarch64-linux-gnu=aarch64-linux-gnu-strip libgcc-s1-arm64-cross=
            qemu-system-arm=qemu-system-aarch64 cpio=cpio) ;;
    switch) wanted=("${build[@]}" "${tools[@]}" dpdk-dev=dpdk-testpmd librte-net-virtio23= librte-net-vhost23= librte-mempool-ring23=
                    libfabric1=)
        optional=(openvswitch-switch-dpdk=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk) ;;
    conformance)
        wanted=("${build[@]}" "${tools[@]}" "${suites[@]}")
        optional=(python3.11=/usr/bin/python3.11 libpython3.11-testsuite= "${more_servers[@]}") ;;
    test|all)
        wanted=("${build[@]}" "${servers[@]}" "${tools[@]}" "${guests[@]}" "${tests[@]}")
        optional=(musl-tools=musl-gcc liburing-dev= libjemalloc2= libtcmalloc-minimal4= python3.11=/usr/bin/python3.11 libpython3.11-testsuite= chromium-headless-shell=chromium-headless-shell python3-numpy=
                  python3-setuptools= python3-wheel= python3-venv= pkg-config=pkg-config
                  golang-go=go sockperf=sockperf python3=python3 curl=curl dnsperf=dnsperf
                  "${mpi[@]}" python3-mpi4py= ucx-utils=ucx_info mpich=mpirun.mpich libmpich-dev= libfabric-dev=/usr/include/rdma/fabric.h) ;;
esac

installed() {  # package=probe
    local package=${1%%=*} probe=${1#*=}
    case $probe in
        "") ;;
        /*) [[ -e $probe ]] && return 0 ;;
        *)  command -v "$probe" >/dev/null && return 0 ;;
    esac
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]]
}

missing_of() {
    local entry
    for entry in "$@"; do
        installed "$entry" || printf '%s\n' "${entry%%=*}"
    done
}

if ! command -v "${CARGO:-cargo}" >/dev/null; then
    echo "cargo is missing: install a Rust toolchain, 1.88 or later (https://rustup.rs)" >&2
    [[ -z ${SUDO_USER:-} ]] || echo "(sudo may have hidden yours: try  sudo env \"PATH=\$PATH\" make …)" >&2
    exit 1
fi

# Rust's standard library for musl, for the library that reaches such programs; without it they stay on TCP.
musl=$(uname -m)-unknown-linux-musl
case $group in
    test|packages|kubernetes|all)
        std=$(rustc --print target-libdir --target "$musl" 2>/dev/null || true)
        if ! compgen -G "$std/libstd-*.rlib" >/dev/null; then
            timeout 300 rustup --quiet target add "$musl" </dev/null ||
                echo "not installed: Rust's target $musl; the tests that need it will be skipped" >&2
        fi ;;
esac

mapfile -t missing < <(missing_of "${wanted[@]}")
mapfile -t missing_optional < <(missing_of ${optional[@]+"${optional[@]}"})
[[ ${#missing[@]} -eq 0 && ${#missing_optional[@]} -eq 0 ]] && exit 0

skip_optional() {  # reason
    local without="the tests that need them will be skipped"
    [[ $group != peers ]] || without="their rows will be shown as failed"
    [[ ${#missing_optional[@]} -eq 0 ]] || echo "not installed ($1): ${missing_optional[*]}; $without" >&2
}

if ! command -v apt-get >/dev/null; then
    skip_optional "no apt-get here"
    [[ ${#missing[@]} -eq 0 ]] && exit 0
    echo "missing: ${missing[*]} (names of Debian packages); apt-get is not here, so please install them" >&2
    exit 1
fi

if [[ $(id -u) -ne 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        exec sudo -n env "PATH=$PATH" "CARGO=${CARGO:-cargo}" bash "$0" "$group"
    fi
    skip_optional "installing needs root"
    [[ ${#missing[@]} -eq 0 ]] && exit 0
    echo "missing: ${missing[*]}" >&2
    echo "installing them needs root: run  sudo apt-get install ${missing[*]}  and start again" >&2
    exit 1
fi

# One installer at a time; another may have installed everything meanwhile.
exec 9>/run/lock/ginnel-install-deps.lock
flock 9
mapfile -t missing < <(missing_of "${wanted[@]}")
mapfile -t missing_optional < <(missing_of ${optional[@]+"${optional[@]}"})

# Somebody else's apt may hold the locks (the one of `update` knows no timeout), or a mirror may be slow to answer.
apt() {
    local attempt
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -qq -y "$@" </dev/null 9>&- && return 0
        [[ $attempt -eq 10 ]] || { echo "apt-get $1 did not succeed (attempt $attempt); trying again in 5 s" >&2; sleep 5; }
    done
    return 1
}

has_candidate() {
    [[ $(apt-cache policy "$1" 2>/dev/null) =~ "Candidate: "[^\(] ]]
}

all_known() {
    local package
    for package in "$@"; do has_candidate "$package" || return 1; done
}

# The package lists are fetched only where they are needed: a fresh container has none.
all_known ${missing[@]+"${missing[@]}"} ${missing_optional[@]+"${missing_optional[@]}"} || apt update || {
    echo "apt-get update failed: is there a network, and are the package sources right?" >&2
    exit 1
}

install=()
for package in ${missing[@]+"${missing[@]}"}; do
    # Libraries whose interface changed with the width of time_t have another name since Debian 13 and Ubuntu 24.04.
    if ! has_candidate "$package" && has_candidate "${package}t64"; then package+=t64; fi
    if ! has_candidate "$package"; then
        echo "no package $package in this release (on Ubuntu, enable 'universe')" >&2
        exit 1
    fi
    install+=("$package")
done
unknown=()
for package in ${missing_optional[@]+"${missing_optional[@]}"}; do
    if has_candidate "$package"; then install+=("$package"); else unknown+=("$package"); fi
done
missing_optional=(${unknown[@]+"${unknown[@]}"})
skip_optional "not in this release"
[[ ${#install[@]} -eq 0 ]] && exit 0

# A package's server must not start. The rule is ours for the length of this installation only, and one that is
# there already is left alone.
policy=/usr/sbin/policy-rc.d
if ( set -o noclobber; printf '#!/bin/sh\nexit 101\n' > "$policy" ) 2>/dev/null; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    chmod 755 "$policy"
fi

echo "installing: ${install[*]}"
if ! apt install --no-install-recommends "${install[@]}"; then
    echo "apt-get could not install: ${install[*]}; see its messages above" >&2
    exit 1
fi

# Nor may it start at the next boot: the demo and the tests start their own, on their own ports.
for package in "${install[@]}"; do
    case $package in
        nginx-light) service=nginx ;;
        redis-server|memcached|caddy|prometheus|etcd-server|postgresql|haproxy) service=${package/etcd-server/etcd} ;;
        apache2|squid|pgbouncer|unbound|rsync) service=$package ;;
        php-fpm) service=$(cd /etc/php && echo */fpm | sed 's|\([^ ]*\)/fpm|php\1-fpm|g') ;;
        bind9) service=named ;;
        samba) service="smbd nmbd samba-ad-dc" ;;
        proftpd-core) service=proftpd ;;
        mariadb-server) service=mariadb ;;
        openssh-server) service="ssh ssh.socket" ;;
        *) continue ;;
    esac
    if command -v systemctl >/dev/null; then
        # shellcheck disable=SC2086 # one name or several
        systemctl --quiet disable $service </dev/null >/dev/null 2>&1 ||
            echo "could not disable the service $service; it may start at the next boot" >&2
    fi
done
