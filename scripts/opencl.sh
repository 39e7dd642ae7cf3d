#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# opencl.sh VENV: OpenCL runtimes for the tests: the system's PoCL, and Intel's CPU runtime in the virtual environment;
# and Oclgrind, a simulator that checks kernels, in a folder of its own.
# Never fatal: what is missing is named, and its tests are skipped. Afterwards, to use both:
#   export OCL_ICD_VENDORS=VENV/share/opencl/vendors
set -uo pipefail
venv=$(cd "$1" && pwd) || exit 1
share=$venv/share/opencl
mkdir -p "$share/vendors" "$share/oclgrind"

# A loader takes one folder, so both runtimes get their one-line file there.
library() { find -L "$@" -print -quit 2>/dev/null; }
name_library() {  # FILE LIBRARY
  if [[ $(cat "$share/$1" 2>/dev/null) != "$2" ]]; then
    echo "$2" >"$share/$1"
    echo "OpenCL: $share/$1 names $2"
  fi
}

find_pocl() { library /usr/lib /usr/lib64 /usr/local/lib -maxdepth 2 -name 'libpocl.so.[0-9]*' -not -name '*.*.*.*.*'; }
has_loader() { [[ -n $(library /usr/lib /usr/lib64 /usr/local/lib -maxdepth 2 -name libOpenCL.so.1) ]]; }
find_oclgrind() { library /usr/lib/oclgrind /usr/local/lib/oclgrind -maxdepth 1 -name 'liboclgrind-rt-icd.so'; }
if ! has_loader || [[ -z $(find_pocl) || -z $(find_oclgrind) ]]; then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -qq >/dev/null 2>&1
    for package in ocl-icd-libopencl1 pocl-opencl-icd oclgrind; do
      echo "OpenCL: installing $package"
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        echo "warning: OpenCL: apt-get could not install $package" >&2
    done
  fi
fi
has_loader || echo "warning: OpenCL: no loader (libOpenCL.so.1); install ocl-icd-libopencl1" >&2
pocl=$(find_pocl)
if [[ -n $pocl ]]; then
  name_library vendors/pocl.icd "$pocl"
else
  rm -f "$share/vendors/pocl.icd"
  echo "warning: OpenCL: PoCL is not there; install pocl-opencl-icd" >&2
fi

oclgrind=$(find_oclgrind)
if [[ -n $oclgrind ]]; then
  name_library oclgrind/oclgrind.icd "$oclgrind"
else
  rm -f "$share/oclgrind/oclgrind.icd"
  echo "warning: OpenCL: Oclgrind is not there, so kernels are not checked; install oclgrind" >&2
fi

# The wheel's own .icd names a folder that does not exist, and its own libOpenCL.so is left alone. It needs the compiler's
# libraries (libimf.so) without saying so.
find_intel() {
  [[ -n $(library "$venv/lib" -maxdepth 1 -name libimf.so) ]] && library "$venv/lib" -maxdepth 1 -name libintelocl.so
}
tried=$share/intel-opencl-rt.failed  # so that a machine without the package asks for it only once
if [[ -z $(find_intel) && $(uname -m) == x86_64 && ! -e $tried ]]; then
  echo "OpenCL: installing Intel's CPU runtime into $venv (225 MB)"
  "$venv/bin/pip" install --quiet intel-opencl-rt intel-cmplr-lib-rt || touch "$tried"
fi
intel=$(find_intel)
if [[ -n $intel ]]; then
  name_library vendors/intel.icd "$intel"
else
  rm -f "$share/vendors/intel.icd"
  echo "warning: OpenCL: Intel's CPU runtime (pip: intel-opencl-rt) is not there; remove $tried to try again" >&2
fi
exit 0
