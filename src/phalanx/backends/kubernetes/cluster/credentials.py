"""The cluster's address and the user's credentials, read as kubectl reads them, with the official package
`kubernetes`."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from phalanx import extras
from phalanx.backends.kubernetes.target import Settings
from phalanx.errors import CallError

if TYPE_CHECKING:
    from urllib3 import PoolManager

IN_CLUSTER = "in-cluster"  # the context name of a pod's service account
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
POOLED = 16
KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]  # detects a dead server within a minute
if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
    KEEP_ALIVE += [
        (socket.IPPROTO_TCP, option, value)
        for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
    ]


class ClusterIdentity(NamedTuple):
    namespace: str
    context: str
    server: str
    user: str
    pool: PoolManager
    authorization: Callable[[], str | None]  # fetches a new token when the old one has expired

    def headers(self) -> dict[str, str]:
        said = self.authorization()
        return {"Authorization": said} if said else {}


class _Chosen(NamedTuple):
    """The entries of the merged kubeconfig that the context names."""

    merged: Any
    save: Callable[[], None]
    files: str
    context: str
    named: Mapping[str, Any]

    @property
    def user(self) -> str:
        return str(self.named.get("user") or "nobody")


def load(settings: Settings) -> ClusterIdentity:
    """Use --kubeconfig, else the files of $KUBECONFIG, else ~/.kube/config, else the service account of this pod. Does
    not contact the cluster. Raises CallError that says what to do."""
    with extras.needed("kubernetes", "a run on Kubernetes"):
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException
    configuration = Configuration()
    files = config_files(settings)
    try:
        if not files:
            return _in_cluster(settings, configuration)
        chosen = _choose(settings, files)
        _read(chosen, configuration)
    except ConfigException as fault:
        said = str(fault).removeprefix("Invalid kube-config file. ").removeprefix("Invalid kube-config. ")
        where = ", ".join(files) if files else "in the cluster"
        raise CallError(f"{where}: invalid kubeconfig: {said}") from None
    namespace = settings.namespace or str(chosen.named.get("namespace") or "default")
    return _identity(configuration, namespace, chosen.context, chosen.user)


def config_files(settings: Settings) -> list[str]:
    """Return the existing kubeconfigs; none in a pod, which has a service account. The file of --kubeconfig must exist;
    of $KUBECONFIG, at least one, as with kubectl. Raises CallError."""
    if settings.kubeconfig is not None:
        named = Path(settings.kubeconfig).expanduser()
        if not named.is_file():
            raise CallError(f"kubeconfig {named} does not exist: name another with --kubeconfig FILE")
        return [str(named)]
    listed = [Path(one).expanduser() for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    found = [str(one) for one in listed or [Path("~/.kube/config").expanduser()] if one.is_file()]
    found = [one for one in found if Path(one).stat().st_size] or found  # some of several may be empty
    if not found and "KUBERNETES_SERVICE_HOST" not in os.environ:
        tried = f"no file of $KUBECONFIG ({os.environ['KUBECONFIG']}) exists" if listed else "$KUBECONFIG is not set"
        raise CallError(
            f"no kubeconfig: {tried}{'' if listed else ' and ~/.kube/config does not exist'}; name one with "
            f"--kubeconfig FILE, the one that kubectl uses"
        )
    return found


def _choose(settings: Settings, files: list[str]) -> _Chosen:
    import yaml
    from kubernetes.config.kube_config import KubeConfigMerger

    try:
        merger = KubeConfigMerger(os.pathsep.join(files))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError, KeyError) as fault:
        first = str(fault).split("\n", 1)[0]
        raise CallError(f"{', '.join(files)}: invalid kubeconfig: {first}") from None
    contexts = {node.value["name"]: node.value.get("context") or {} for node in merger.config.value["contexts"]}
    # the package takes the current context from the last file, kubectl from the first
    current = next((one["current-context"] for one in merger.config_files.values() if one.get("current-context")), None)
    context = settings.context or current
    listed = f"the contexts are: {', '.join(sorted(contexts))}" if contexts else "it has no contexts"
    if not context:
        raise CallError(f"{', '.join(files)}: no current context is set: name one with --context; {listed}")
    if context not in contexts:
        raise CallError(f"{', '.join(files)}: no context `{context}`; {listed}")
    return _Chosen(merger.config, merger.save_changes, ", ".join(files), str(context), contexts[context])


def _read(chosen: _Chosen, configuration: Any) -> None:
    from kubernetes.config.kube_config import KubeConfigLoader

    loader = KubeConfigLoader(
        chosen.merged, active_context=chosen.context, config_base_path=None, config_persister=chosen.save
    )
    try:
        with _overheard() as said:
            loader.load_and_set(configuration)
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise CallError(f"{chosen.files}: the credentials of `{chosen.user}` cannot be loaded: {fault}") from None
    user = _node(chosen.merged, "users", chosen.user).get("user") or {}
    has_some = configuration.api_key.get("authorization") or configuration.cert_file
    if "exec" in user and not has_some:
        # the package only logs this and would continue without credentials
        why = said[-1] if said else "it returned neither a token nor a certificate"
        raise CallError(f"`{user['exec'].get('command')}`, which fetches the credentials of `{chosen.user}`: {why}")
    cluster = _node(chosen.merged, "clusters", str(chosen.named.get("cluster"))).get("cluster") or {}
    if cluster.get("proxy-url"):
        configuration.proxy, configuration.no_proxy = cluster["proxy-url"], None
    else:
        _set_proxy(configuration)


def _node(merged: Any, what: str, name: str) -> Mapping[str, Any]:
    return next((node.value for node in merged.value[what] if node.value.get("name") == name), {})


def _set_proxy(configuration: Any) -> None:
    """Set the proxy from the environment. The package uses an http proxy for https too, and ignores NO_PROXY."""
    parts = urlsplit(configuration.host)
    environment = {name.lower(): value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    is_near = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    configuration.proxy = None if is_near else environment.get(f"{parts.scheme}_proxy")
    configuration.no_proxy = environment.get("no_proxy")


def _in_cluster(settings: Settings, configuration: Any) -> ClusterIdentity:
    from kubernetes.config import load_incluster_config

    if settings.context not in (None, IN_CLUSTER):
        raise CallError(f"no context `{settings.context}`: there is no kubeconfig, only this pod's service account")
    load_incluster_config(client_configuration=configuration)
    own = OWN_NAMESPACE.read_text(encoding="utf-8").strip() if OWN_NAMESPACE.is_file() else "default"
    configuration.proxy = None
    return _identity(configuration, settings.namespace or own, IN_CLUSTER, "this pod's service account")


def _identity(configuration: Any, namespace: str, context: str, user: str) -> ClusterIdentity:
    from kubernetes.client.rest import RESTClientObject

    configuration.connection_pool_maxsize = POOLED
    try:
        pool: PoolManager = RESTClientObject(configuration).pool_manager
        _trust(pool, configuration)
    except (OSError, ValueError) as fault:
        raise CallError(f"context `{context}`: {fault}") from None
    pool.connection_pool_kw["socket_options"] = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *KEEP_ALIVE]

    def authorization() -> str | None:
        with _overheard():
            said = configuration.get_api_key_with_prefix("authorization")
        return str(said).strip() if said else None  # a token file may end with a newline

    return ClusterIdentity(namespace, context, str(configuration.host), user, pool, authorization)


def _trust(pool: PoolManager, configuration: Any) -> None:
    """Load certificates now: the package keeps those embedded in a kubeconfig in temporary files, which a cleanup job
    may remove while this process runs for weeks."""
    import urllib3
    from urllib3.util.ssl_ import create_urllib3_context

    known = pool.connection_pool_kw
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
    # Python 3.13 rejects authorities that kubectl accepts, such as those of some clouds.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    authority, certificate, key = (known.pop(name, None) for name in ("ca_certs", "cert_file", "key_file"))
    if authority:
        context.load_verify_locations(authority)
    if not configuration.ssl_ca_cert:
        context.load_default_certs()  # the CAs of this machine
    if certificate:
        context.load_cert_chain(certificate, key)
    known["ssl_context"] = context
    if not configuration.verify_ssl:  # set in the kubeconfig: don't warn on every request
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)


@contextmanager
def _overheard() -> Iterator[list[str]]:
    """Collect this thread's messages to the root logger, where the package reports errors. Without a handler there,
    logging would install one that keeps printing."""
    said: list[str] = []
    me = threading.get_ident()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == me:
                said.append(record.getMessage().strip())

    listener = Listener()
    root = logging.getLogger()
    root.addHandler(listener)
    try:
        yield said
    finally:
        root.removeHandler(listener)
