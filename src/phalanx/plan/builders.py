"""The command of a build: a script that never changes, with the words of the user as its arguments. Pure.

What is built depends on `to`: without it a virtual environment; `NAME.sif` is an image of Apptainer; everything else is
an image in a registry or in an archive, made by the first builder that the machine has.
"""

from __future__ import annotations

from enum import StrEnum, auto
from pathlib import PurePosixPath

from phalanx.deferred_patterns import deferred_pattern
from phalanx.errors import CallError
from phalanx.plan import build_recipes
from phalanx.spec.model import Build

FOLDER = "PHALANX_BUILD"  # the variable with the folder of a virtual environment
KEY_LABEL = "phalanx.build"  # of an image: the key of its content
IMAGE_BUILDERS = ("buildah", "podman", "docker", "buildctl")
_REFERENCE = deferred_pattern(
    r"(?:[A-Za-z0-9.-]+(?::\d{1,5})?/)?[a-z0-9][a-z0-9._/-]*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?\Z"
)
_ARCHIVE = deferred_pattern(r"(?:docker-archive:|oci-archive:)?.+\.tar\Z")
_LOCAL_REGISTRY = deferred_pattern(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?/")


FIRST_LINES = {pattern: build_recipes.copy_line(pattern) for pattern in build_recipes.COPIED_FIRST}


class BuildTarget(StrEnum):
    VIRTUALENV = auto()
    APPTAINER = auto()
    ARCHIVE = auto()
    REGISTRY = auto()


_HEAD = """\
set -eu
fail() {
  echo "phalanx: $*" >&2
  exit 1
}
"""
_VIRTUALENV = (
    _HEAD
    + """\
is_fresh=$1
shift
place=${PHALANX_BUILD:-$PHALANX_OUTPUTS/build}
mkdir -p "$(dirname "$place")"
if command -v flock >/dev/null; then # one build of the same content at a time
  exec 9>"$place.lock"
  flock 9
fi
if [ -e "$place/done" ] && [ "$is_fresh" = no ]; then
  echo "the same content was built before: $place/venv"
  exit 0
fi
rm -rf "$place"
mkdir -m 700 "$place"
echo "creating a virtual environment: $place/venv"
python=
for found in "${PHALANX_PYTHON:-}" "${PHALANX_FOUND_PYTHON:-}" python3; do
  [ -n "$found" ] && command -v "$found" >/dev/null && python=$found && break
done
[ -n "$python" ] || fail "there is no python3 on the PATH"
if [ -n "${PHALANX_BUILD_ISOLATED:-}" ]; then
  "$python" -m venv "$place/venv"
else
  "$python" -m venv --system-site-packages "$place/venv"
fi
export VIRTUAL_ENV="$place/venv" PATH="$place/venv/bin:$PATH"
unset PYTHONHOME
number=0
for step; do
  number=$((number + 1))
  echo "step $number of $#: $step"
  bash -c "$step" 9>&- || fail "step $number failed with code $?: $step"
done
touch "$place/done"
echo "built $place/venv"
"""
)
_RECIPE = """\
to=$1 text=$2 file=$3 context=$4 is_fresh=$5 missing=$6
export LC_ALL=C
cd "$context" || fail "the context '$context' does not exist"
mkdir -p "$PHALANX_OUTPUTS"
written=$PHALANX_OUTPUTS/$(basename "${file:-$NAME}")
if [ -n "$file" ]; then
  [ -f "$OLDPWD/$file" ] || fail "there is no file '$file'"
  cp "$OLDPWD/$file" "$written"
else
  printf %s "$text" >"$written"
  for one in '*requirements*.txt' '*conda_env*.y*ml' '*setup.sh'; do # not all builders accept a pattern without files
    if ! compgen -G "$one" >/dev/null; then
      grep -Fvx 'COPY ["'"$one"'", "./"]' "$written" >"$written.part"
      mv "$written.part" "$written"
    fi
  done
fi
key=$({
  cat "$written"
  for one in *requirements*.txt *conda_env*.y*ml *setup.sh; do
    if [ -f "$one" ]; then printf '\\0%s\\0' "$one" && cat "$one"; fi
  done
} | sha256sum | cut -c 1-24)
echo "content $key"
"""
_APPTAINER = (
    _HEAD
    + "NAME=image.def\n"
    + _RECIPE
    + """\
case $to in /*) ;; *) to=$OLDPWD/$to ;; esac
apptainer=$(command -v apptainer || command -v singularity) || fail "$missing"
labels=$([ "$is_fresh" = no ] && [ -f "$to" ] && "$apptainer" inspect --labels "$to" 2>/dev/null) || labels=
if printf %s "$labels" | grep -Fq "phalanx.build: $key"; then
  echo "the same content was built before: $to"
  exit 0
fi
printf '\\n%%labels\\n    phalanx.build %s\\n' "$key" >>"$written"
mkdir -p "$(dirname "$to")"
"$apptainer" build --force --bind "$PWD:/code" "$to.part" "$written" || fail "apptainer failed with code $?"
mv "$to.part" "$to"
echo "built $to"
"""
)
_IMAGE = (
    _HEAD
    + "NAME=Dockerfile\n"
    + _RECIPE
    + """\
place=$7
archive=${to#docker-archive:}
kind=docker-archive
case $to in oci-archive:*) archive=${to#oci-archive:} kind=oci-archive ;; esac
case $archive in /*) ;; *) archive=$OLDPWD/$archive ;; esac
case $to in *.tar) name=localhost/phalanx:$key is_archive=yes ;; *) name=$to is_archive=no ;; esac
again=()
if [ "$is_fresh" = yes ]; then again=(--no-cache); fi
tls=()
if [ "$place" = local ]; then tls=(--tls-verify=false); fi
label=phalanx.build=$key
if [ "$is_archive" = yes ]; then # builders do not replace an archive, also not one that a killed build left
  mkdir -p "$(dirname "$archive")"
  rm -f "$archive.part"
fi
if tool=$(command -v buildah); then
  if ! command -v crun >/dev/null && ! command -v runc >/dev/null; then
    export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
  fi
  words=(--layers "${again[@]}" "${tls[@]}" --label "$label" -f "$written" -t "$name")
  "$tool" build "${words[@]}" . || fail "buildah failed with code $?"
  to=docker://$name
  if [ "$is_archive" = yes ]; then to=$kind:$archive.part:$name; fi
  "$tool" push "${tls[@]}" "$name" "$to" || fail "buildah push failed with code $?"
elif tool=$(command -v podman || command -v docker); then
  case $kind:$tool in
  oci-archive:*docker) fail "docker saves no oci-archive: leave out 'oci-archive:', or install buildah or podman" ;;
  *docker) tls=() ;;
  esac
  "$tool" build "${again[@]}" --label "$label" -f "$written" -t "$name" . || fail "$tool build failed with code $?"
  if [ "$is_archive" = yes ]; then
    format=()
    case $tool in *podman) format=(--format "$kind") ;; esac
    "$tool" save "${format[@]}" -o "$archive.part" "$name" || fail "$tool save failed with code $?"
  else
    "$tool" push "${tls[@]}" "$name" || fail "$tool push failed with code $?"
  fi
elif tool=$(command -v buildctl); then
  output=type=image,name=$name,push=true
  if [ "$place" = local ]; then output+=,registry.insecure=true; fi
  if [ "$is_archive" = yes ]; then output=type=${kind%-archive},dest=$archive.part,name=$name; fi
  words=(--progress=plain --frontend dockerfile.v0 --local context=. --local "dockerfile=$(dirname "$written")")
  words+=(--opt "filename=$(basename "$written")" --opt "label:$label" "${again[@]}" --output "$output")
  "$tool" build "${words[@]}" || fail "buildctl failed with code $?"
else
  fail "$missing"
fi
if [ "$is_archive" = yes ]; then mv "$archive.part" "$archive" && name=$archive; fi
echo "built $name"
"""
)
MISSING_BUILDERS = {
    BuildTarget.APPTAINER: "building a .sif needs `apptainer`, which is not on the PATH: load its module, or leave out "
    "`to` for a virtual environment",
    **dict.fromkeys(
        (BuildTarget.ARCHIVE, BuildTarget.REGISTRY),
        "building an image needs `buildah`, `podman`, `docker` or `buildctl`, and none is on the PATH: install one, "
        "build on Kubernetes (`--on kubernetes`), or leave out `to` for a virtual environment",
    ),
}


def target_of(build: Build) -> BuildTarget:
    """What a build makes. Raises CallError for a `to` that means nothing."""
    to = build.to
    if to is None:
        return BuildTarget.VIRTUALENV
    if to.startswith("-") or not to.isprintable():
        raise CallError(f"`to: {to[:100]!r}` is neither a file nor an image name")
    if to.endswith(".sif"):
        return BuildTarget.APPTAINER
    if _ARCHIVE.match(to):
        return BuildTarget.ARCHIVE
    if not _REFERENCE.match(to):
        raise CallError(f"`to: {to[:100]}` is not an image name: write NAME.sif, NAME.tar or REGISTRY/NAME:TAG")
    return BuildTarget.REGISTRY


def builders_of(target: BuildTarget) -> tuple[str, ...]:
    """The programs of which one must be on the PATH."""
    if target is BuildTarget.VIRTUALENV:
        return ()
    return ("apptainer", "singularity") if target is BuildTarget.APPTAINER else IMAGE_BUILDERS


def recipe_of(build: Build) -> str | None:
    """The Dockerfile or definition file of a build; None for a virtual environment, and if the file names a Dockerfile.
    Raises CallError."""
    target = target_of(build)
    if target is BuildTarget.VIRTUALENV:
        return None
    if build.dockerfile is not None:
        if target is BuildTarget.APPTAINER:
            raise CallError(
                "`dockerfile`: Apptainer does not read Dockerfiles; build an archive (`--to NAME.tar`) with it"
            )
        return None
    if build.image is None:
        raise CallError(
            f"`to: {(build.to or '')[:100]}` makes an image, which begins with another one: add `image: NAME`"
        )
    if target is BuildTarget.APPTAINER:
        return build_recipes.definition(build, build.image)
    return build_recipes.dockerfile(build, build.image, FIRST_LINES.values())


def command_of(build: Build) -> tuple[str, tuple[str, ...]]:
    """The command of a build, as shown to the user and as executed. Raises CallError."""
    target, is_fresh = target_of(build), "yes" if build.nocache else "no"
    if build.to is None and build.dockerfile is not None:
        return f"image build of {build.dockerfile}", ()  # a backend says where its image goes
    if target is BuildTarget.VIRTUALENV:
        steps = build.build_steps
        return " && ".join(steps) or "an empty virtual environment", (
            "bash",
            "-c",
            _VIRTUALENV,
            "build",
            is_fresh,
            *steps,
        )
    recipe = recipe_of(build) or ""
    words = [
        build.to or "",
        recipe,
        _below(build.dockerfile, "dockerfile"),
        _below(build.context, "context") or ".",
        is_fresh,
        MISSING_BUILDERS[target],
    ]
    if target is BuildTarget.APPTAINER:
        return f"apptainer build {build.to}", ("bash", "-c", _APPTAINER, "build", *words)
    words.append("local" if _LOCAL_REGISTRY.match(build.to or "") else "remote")
    return f"image build {build.to}", ("bash", "-c", _IMAGE, "build", *words)


def _below(path: str | None, key: str) -> str:
    """A path inside the code. Raises CallError."""
    if path is None:
        return ""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not path.isprintable():
        raise CallError(f"`build.{key}: {path[:100]}` is not inside the code: write a path relative to its root")
    return f"./{found}"
