"""Solve or install conda packages: the program of a build step, run by the agent's interpreter.

It gets a request as a file, and runs nothing of any package: scripts that packages would like to
run after their installation are not run.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import rattler


def _gateway(scratch: Path) -> rattler.Gateway:
    # Shards may be on other hosts than the channel, which the step may not reach.
    config = rattler.SourceConfig(sharded_enabled=False)
    return rattler.Gateway(cache_dir=scratch / "repodata", default_config=config)


def _machine(cuda: str) -> list[rattler.GenericVirtualPackage]:
    """Return what the machine offers: its kernel, C library, processor and driver of CUDA."""
    detected = [package.into_generic() for package in rattler.VirtualPackage.detect()]
    virtual = [package for package in detected if package.name.normalized != "__cuda"]
    if cuda:
        name, version = rattler.PackageName("__cuda"), rattler.Version(cuda)
        build = rattler.BuildString("0")
        virtual.append(rattler.GenericVirtualPackage(name, version, build))
    return virtual


async def _solve(scratch: Path, channels: list[str], specs: list[str], cuda: str) -> None:
    records = await rattler.solve(
        sources=channels,
        specs=[rattler.MatchSpec(spec) for spec in specs],
        gateway=_gateway(scratch),
        virtual_packages=_machine(cuda),
        channel_relations="disabled",
    )
    lines = []
    for record in records:
        if record.sha256 is None:
            raise ValueError(f"{record.url} has no sha256 digest in its channel: not installed.")
        lines.append(f"{record.url}#sha256:{record.sha256.hex()}")
    (scratch / "solved.txt").write_text("\n".join(sorted(lines)), "utf-8")
    _write(f"Solved: {len(lines)} packages.")


async def _install(scratch: Path, prefix: Path, archives: list[dict[str, str]]) -> None:
    records = []
    for archive in archives:
        package = rattler.PackageRecord(
            archive["name"],
            rattler.VersionWithSource(archive["version"]),
            rattler.BuildString(archive["build"]),
            0,
            archive["subdir"],
            sha256=bytes.fromhex(archive["sha256"]),
        )
        file_name = archive["url"].rpartition("/")[2]
        records.append(
            rattler.RepoDataRecord(package, file_name, archive["url"], archive["channel"])
        )
        _write(f"+ {archive['name']} {archive['version']} {archive['build']}")
    await rattler.install(
        records,
        target_prefix=prefix,
        cache_dir=scratch / "packages",
        execute_link_scripts=False,
        show_progress=False,
    )


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the request says."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    scratch = Path(request["scratch"])
    if "prefix" in request:
        run = _install(scratch, Path(request["prefix"]), request["archives"])
    else:
        run = _solve(scratch, request["channels"], request["specs"], request["cuda"])
    status = 0
    try:
        asyncio.run(run)
    except Exception as error:  # noqa: BLE001 - whatever it is, the log has its words
        # The words of the solver, without lines of this program.
        _write(str(error).strip() or repr(error))
        status = 1
    # Threads of rattler that call Python while the interpreter ends would abort the process.
    os._exit(status)


main()
