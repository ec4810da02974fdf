#!/bin/sh
# Installs the Debian packages that tests need, if this is root on Debian; says which tests are skipped for want of others.
set -eu
PACKAGES="git libopenmpi-dev openmpi-bin slurm-wlm munge openssh-server openssh-client iproute2 sshfs fish tcsh chromium chromium-driver fonts-dejavu-core"
PACKAGES="$PACKAGES gridengine-master gridengine-exec gridengine-client"
# The checker of HTML runs on any Java.
command -v java >/dev/null || PACKAGES="$PACKAGES default-jre-headless"

missing_of() {
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || printf ' %s' "$package"
  done
}

install_packages() {
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
}

# shellcheck disable=SC2086
missing=$(missing_of $PACKAGES)
[ -z "$missing" ] && exit 0
reason="this is not root on Debian"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Debian packages:$missing"
  # Without network some may be in its cache; what a distribution lacks, such as Ubuntu Chromium, must not cost the others.
  apt-get -o DPkg::Lock::Timeout=300 update -qq || true
  # shellcheck disable=SC2086
  install_packages $missing || for package in $missing; do install_packages "$package" || true; done
  # shellcheck disable=SC2086
  missing=$(missing_of $missing)
  [ -z "$missing" ] && exit 0
  reason="apt-get could not install them (above)"
fi
echo "********************************************************************************" >&2
echo "NOT INSTALLED, because $reason:$missing" >&2
echo "Tests of MPI, SLURM, Grid Engine, ssh, network file systems and pages, in a browser or by a checker, are skipped where these are missing." >&2
echo "As root: apt-get install$missing" >&2
echo "********************************************************************************" >&2
