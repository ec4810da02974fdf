#!/bin/sh
# Installs the Debian packages that tests need, if this is root on Debian; otherwise says which tests will be skipped.
set -eu
PACKAGES="libopenmpi-dev openmpi-bin slurm-wlm munge openssh-server openssh-client iproute2 sshfs fish tcsh chromium chromium-driver fonts-dejavu-core"
PACKAGES="$PACKAGES gridengine-master gridengine-exec gridengine-client"
# The checker of HTML runs on any Java.
command -v java >/dev/null || PACKAGES="$PACKAGES default-jre-headless"

missing=""
for package in $PACKAGES; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Debian packages:$missing"
  apt-get -o DPkg::Lock::Timeout=300 update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $missing >/dev/null
else
  echo "********************************************************************************" >&2
  echo "NOT INSTALLED, because this is not root on Debian:$missing" >&2
  echo "Tests of MPI, SLURM, Grid Engine, ssh, network file systems and pages, in a browser or by a checker, are skipped where these are missing." >&2
  echo "As root: apt-get install$missing" >&2
  echo "********************************************************************************" >&2
fi
