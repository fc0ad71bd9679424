"""Ansible as a person runs it: its own environment, an inventory, ssh with a key, on labs that only have sshd.

Fixtures only. Rules: nothing of the user's ssh or Ansible set-up is read or written; the lab's host key is known
before the first connection; what a play printed is kept, so that a test can look for what must not be in it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.lab import Lab

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "deploy" / "ansible"
BIN = ROOT / ".venv-ansible" / "bin"
#: A deployment takes about a minute; on a busy machine several.
NET_S = 600
_TASK = re.compile(r"^TASK \[(.*?)\] \*+$", re.MULTILINE)
_RECAP = re.compile(r"^(\S+)\s*: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a play ended."""

    status: int
    output: str

    def changed(self, host: str = "lab") -> int:
        """How many tasks changed something on the host. Raises KeyError when the play did not reach it."""
        return {row[1]: int(row[3]) for row in _RECAP.finditer(self.output)}[host]

    def places(self, host: str) -> list[int]:
        """Where in the output each task on the host was told."""
        return [told.start() for told in re.finditer(rf"^(?:ok|changed): \[{host}\]", self.output, re.MULTILINE)]

    def changes(self, host: str = "lab") -> list[str]:
        """The names of the tasks that changed something on the host."""
        _, *parts = _TASK.split(self.output)
        tasks = zip(parts[::2], parts[1::2], strict=True)
        return [name for name, told in tasks if f"changed: [{host}]" in told]


class Controller:
    """A folder with a key, an inventory and variables; plays `deploy.yml` on labs."""

    def __init__(self, folder: Path, labs: Mapping[str, Lab]) -> None:
        """`labs`: the name of a host → where it is."""
        self.folder = folder
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
        self._ports = {name: _let_in(lab, key.with_suffix(".pub").read_text()) for name, lab in labs.items()}
        known = (f"[127.0.0.1]:{port} {_host_key(labs[name])}" for name, port in self._ports.items())
        (folder / "known_hosts").write_text("".join(known))
        self.inventory(*labs)

    def inventory(self, *hosts: str, names: Mapping[str, str] | None = None) -> None:
        """The hosts of the next plays, in this order; `names`: further names that a host goes by → the host."""
        text = {"bulkhead": {"hosts": {name: self._connection((names or {}).get(name, name)) for name in hosts}}}
        (self.folder / "inventory.json").write_text(json.dumps(text))

    def _connection(self, host: str) -> dict[str, Any]:
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self._ports[host],
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def play(self, variables: Mapping[str, Any], *options: str) -> Played:
        """`ansible-playbook deploy.yml`; variables in a file, as a vault's would be, never on the command line."""
        file = self.folder / "variables.json"
        file.write_text(json.dumps(variables))
        ssh = f"-F none -o UserKnownHostsFile={self.folder / 'known_hosts'} -o IdentitiesOnly=yes"
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("ANSIBLE_", "BULKHEAD_"))}
        env = clean | {
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_SSH_ARGS": f"{ssh} -o ControlMaster=auto -o ControlPersist=5s",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "c"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
        }
        command = [str(BIN / "ansible-playbook"), "deploy.yml", "-i", str(self.folder / "inventory.json")]
        ended = subprocess.run(
            [*command, "-e", f"@{file}", *options],
            cwd=PLAYBOOKS,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=NET_S,
        )
        return Played(status=ended.returncode, output=ended.stdout)


def _let_in(lab: Lab, public_key: str) -> int:
    """Start an sshd for root with this key; its port on loopback."""
    port = _free_port()
    lab.write("/root/.ssh/authorized_keys", public_key, mode=0o600)
    lab.run(["mkdir", "-p", "/run/sshd"])
    sshd = ["/usr/sbin/sshd", "-D", "-p", str(port), "-o", "ListenAddress=127.0.0.1", "-o", "UsePAM=no"]
    lab.run(["systemd-run", "--quiet", "--unit=lab-sshd", *sshd])
    return port


def _host_key(lab: Lab) -> str:
    return lab.read("/etc/ssh/ssh_host_ed25519_key.pub")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
