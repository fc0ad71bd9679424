"""Ansible as a person runs it: its own environment, an inventory, ssh with a key, on a lab that only has sshd.

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

    def changes(self, host: str = "lab") -> list[str]:
        """The names of the tasks that changed something on the host."""
        _, *parts = _TASK.split(self.output)
        tasks = zip(parts[::2], parts[1::2], strict=True)
        return [name for name, told in tasks if f"changed: [{host}]" in told]


class Controller:
    """A folder with a key, an inventory and variables; plays `deploy.yml` on one lab."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder = folder
        self._port = _free_port()
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
        lab.write("/root/.ssh/authorized_keys", key.with_suffix(".pub").read_text(), mode=0o600)
        lab.run(["mkdir", "-p", "/run/sshd"])
        sshd = ["/usr/sbin/sshd", "-D", "-p", str(self._port), "-o", "ListenAddress=127.0.0.1", "-o", "UsePAM=no"]
        lab.run(["systemd-run", "--quiet", "--unit=lab-sshd", *sshd])
        host_key = lab.read("/etc/ssh/ssh_host_ed25519_key.pub")
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self._port} {host_key}")
        self.inventory("lab")

    def inventory(self, *hosts: str) -> None:
        """Name the lab once, or several times."""
        connection = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self._port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        text = {"bulkhead": {"hosts": dict.fromkeys(hosts, connection)}}
        (self.folder / "inventory.json").write_text(json.dumps(text))

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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
