"""Made-up /proc trees: a machine with a Ray node, a keeper, units, guards and hands.

raylet 10 --- keeper 20
         \\-- unit 30 (grey-0) --- guard 31 --- hands 32
         \\-- unit 40 (grey-1)
"""

from __future__ import annotations

import os
from pathlib import Path

from wolfpack.chaos.proof import HANDS_MODULE, Claim, Processes

BOOTED_AT = 1_000_000.0
TICKS = os.sysconf("SC_CLK_TCK")
NODE = "dbc811d8"
HERE = "pid:[4026531836]"
WOKE_AT = BOOTED_AT + 51.0  # grey-0 began at 50


class Tree:
    """Writes processes as /proc shows them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "self" / "ns").mkdir(parents=True)
        (root / "self" / "ns" / "pid").symlink_to(HERE)
        (root / "meminfo").write_text("no process\n")
        raylet = ["/opt/ray/raylet/raylet", f"--node_id={NODE}", "--node_ip_address=192.0.2.2", "--head"]
        self.add(1, ["init"], 0)
        self.add(10, raylet, 1)
        self.add(20, ["ray::Keeper"], 10)
        self.add(30, ["ray::UnitActor.lifeline"], 10, began_s=50)
        self.add(31, hands("grey-0", 30), 30)
        self.add(32, hands("grey-0", 30), 31)
        self.add(40, ["ray::UnitActor"], 10, began_s=60)
        self.add(90, ["bash"], 1)

    def add(
        self,
        pid: int,
        command: list[str],
        parent: int,
        *,
        began_s: float = 1.0,
        state: str = "S",
        namespace: str = HERE,
    ) -> None:
        folder = self.root / str(pid)
        (folder / "ns").mkdir(parents=True, exist_ok=True)
        (folder / "ns" / "pid").unlink(missing_ok=True)
        (folder / "ns" / "pid").symlink_to(namespace)
        (folder / "cmdline").write_bytes("\0".join(command).encode() + b"\0" * 40)  # a changed title is padded
        rest = [state, str(parent), *["0"] * 17, str(int(began_s * TICKS)), "0"]
        (folder / "stat").write_text(f"{pid} (a) name (of) ours) {' '.join(rest)}\n")

    @property
    def processes(self) -> Processes:
        return Processes(self.root, BOOTED_AT)


def hands(unit: str, unit_pid: int) -> list[str]:
    return ["/usr/bin/python", "-P", "-m", HANDS_MODULE, "41", "45", str(unit_pid), unit]


def unit_claim(**changes: object) -> Claim:
    return Claim("grey-0", 30, NODE, "ray::UnitActor", WOKE_AT)._replace(**changes)


def keeper_claim(**changes: object) -> Claim:
    return Claim("the keeper", 20, NODE, "ray::Keeper", None)._replace(**changes)
