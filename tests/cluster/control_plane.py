"""Starts etcd, kube-apiserver and, where asked, the controllers and the scheduler, on free ports of the loopback.

`ControlPlane` is everything a test needs of the servers; the objects in them are `tests.cluster.objects`' matter.
"""

import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.audit import POLICY, AuditLog
from tests.cluster.certificates import write_certificates
from tests.cluster.client import ApiClient, ApiError
from tests.cluster.processes import Process, ProcessEndedError, free_port
from tests.cluster.program import Program

ISSUER = "https://kubernetes.default.svc"
SERVICE_ADDRESSES = "10.77.0.0/24"

CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "daemonset-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "clusterrole-aggregation-controller",
    "validatingadmissionpolicy-status-controller",
)
"""What `start_controllers()` runs unless told otherwise. No node controller: a Node stays as a test left it."""


class ControlPlane:
    """One cluster without containers. Give its methods Nodes and Pods to have any."""

    def __init__(self, program: Program, folder: Path, *, apiserver_flags: Sequence[str] = ()) -> None:
        """Write keys, tokens and configuration into `folder`; nothing is started yet.

        `apiserver_flags` are added to those of every API server here, such as `--etcd-compaction-interval=5s`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificates = write_certificates(folder)
        self._clients: list[ApiClient] = []
        self.server = f"https://127.0.0.1:{free_port()}"
        self.admin_token = secrets.token_urlsafe(24)
        self.admin = self.client(self.admin_token)
        """A client in `system:masters`, which no rule refuses."""
        self.audit = AuditLog(folder / "audit.log")
        self.admin_kubeconfig = self.kubeconfig(self.admin_token, name="admin")
        self._program = program
        self._etcd_port = free_port()
        self.etcd = self._process("etcd", self._etcd_flags())
        self.apiserver = self._process("kube-apiserver", [*self._apiserver_flags(), *apiserver_flags])
        self.controllers: Process | None = None
        self.scheduler: Process | None = None
        self._kubeconfigs = 0

    # Life

    def start(self) -> None:
        """Start etcd and the API server and wait until requests are answered."""
        self.etcd.start()
        self.start_apiserver()
        self._await_default_account()

    def start_apiserver(self) -> None:
        """Start the API server, on its former port and state after a stop, and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait_until(lambda: self._answers_ok(f"{self.server}/readyz"))

    def stop_apiserver(self) -> None:
        """Stop the API server in order; connections are refused from then on."""
        # With watches open it takes its time to shut down; nothing here gains by waiting for it.
        self.apiserver.stop(seconds=2.0)

    def restart_apiserver(self) -> None:
        """Stop and start the API server: watches end, objects stay."""
        self.stop_apiserver()
        self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections open and nothing answers, until `resume_apiserver`."""
        self.apiserver.pause()

    def resume_apiserver(self) -> None:
        """Let a paused API server go on."""
        self.apiserver.resume()

    def start_controllers(self, controllers: Sequence[str] = CONTROLLERS) -> None:
        """Run kube-controller-manager with just these controllers. Apply CRDs first: the collector looks every 30 s."""
        self.controllers = self._start_part(
            "kube-controller-manager",
            f"--controllers={','.join(controllers)}",
            f"--root-ca-file={self.certificates.authority}",
            "--use-service-account-credentials=false",
        )

    def start_scheduler(self) -> None:
        """Run kube-scheduler."""
        self.scheduler = self._start_part("kube-scheduler")

    def stop_controllers(self) -> None:
        """Stop the controllers and the scheduler, where they run."""
        for part in (self.controllers, self.scheduler):
            if part is not None:
                part.stop()
        self.controllers = self.scheduler = None

    def stop(self) -> None:
        """End everything at once; the state is thrown away anyhow."""
        self.close_clients()
        for part in (self.controllers, self.scheduler, self.apiserver, self.etcd):
            if part is not None:
                part.kill()

    # Access

    def client(self, token: str | None, *, server: str | None = None) -> ApiClient:
        """Return a client with this token, `None` for nobody; `server` is another address, such as a proxy's."""
        client = ApiClient(server or self.server, authority=self.certificates.authority, token=token)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close the kept connections of every client that was made here; each stays usable."""
        for client in self._clients:
            client.close()

    def kubeconfig(self, token: str, *, server: str | None = None, name: str | None = None) -> Path:
        """Write a kubeconfig with this token and return its path."""
        if name is None:
            self._kubeconfigs += 1
            name = f"user-{self._kubeconfigs}"
        cluster = {"server": server or self.server, "certificate-authority": str(self.certificates.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        # JSON is YAML too.
        path.write_text(json.dumps(config, indent=1))
        return path

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as the admin unless told otherwise; with `check` a failure raises with what it printed."""
        done = subprocess.run(
            [*self._program.argv("kubectl"), *arguments],
            input=stdin,
            env=os.environ
            | {"KUBECONFIG": str(kubeconfig or self.admin_kubeconfig), "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}{done.stdout}"
            )
        return done

    # Parts

    def _process(self, part: str, flags: Sequence[str]) -> Process:
        return Process(part, [*self._program.argv(part), *flags], log=self.folder / f"{part}.log")

    def _etcd_flags(self) -> list[str]:
        peer = f"http://127.0.0.1:{free_port()}"
        own = f"http://127.0.0.1:{self._etcd_port}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={own}",
            f"--advertise-client-urls={own}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data need not outlive the machine
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(POLICY)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        files = self.certificates
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.server.rpartition(':')[2]}",
            f"--tls-cert-file={files.server}",
            f"--tls-private-key-file={files.server_key}",
            f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
            "--endpoint-reconciler-type=none",  # a loopback address is not allowed as an endpoint
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={tokens}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={files.service_account_key}",
            f"--service-account-signing-key-file={files.service_account_key}",
            # On in OpenShift and in hardened clusters, and the stricter case for owner references.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            # It taints each new Node as not ready, and the controller that takes the taint off does not run.
            "--disable-admission-plugins=TaintNodesByCondition",
            "--allow-privileged=true",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=4000",  # 0 means 100 MB, and a rotated log would lose requests
        ]

    def _start_part(self, part: str, *flags: str) -> Process:
        port = free_port()
        process = self._process(
            part,
            [
                f"--kubeconfig={self.admin_kubeconfig}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={self.certificates.server}",
                f"--tls-private-key-file={self.certificates.server_key}",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                *flags,
            ],
        )
        process.start()
        process.wait_until(lambda: self._answers_ok(f"https://127.0.0.1:{port}/healthz"))
        return process

    def _answers_ok(self, url: str) -> bool:
        trust = ssl.create_default_context(cafile=str(self.certificates.authority))
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.admin_token}"})
        try:
            with urllib.request.urlopen(request, timeout=2, context=trust) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):  # not listening yet, or not ready yet
            return False

    def _await_default_account(self, *, seconds: float = 20.0) -> None:
        """Make the service account `default`, which Pods need and which no controller makes while none runs."""
        deadline = time.monotonic() + seconds
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        while True:
            try:
                self.admin.apply("/api/v1/namespaces/default/serviceaccounts", account, manager="tests")
            except ApiError as error:  # the namespace is made a moment after the server is ready
                if error.status != 404 or time.monotonic() > deadline:
                    raise ProcessEndedError(f"the API server made no namespace `default`: {error}") from error
                time.sleep(0.05)
            else:
                return
