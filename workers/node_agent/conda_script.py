"""Solve, fetch or install conda packages: the program of a step, run by the agent's interpreter.

It gets a request as a file, and runs nothing of any package: scripts that packages would like to
run after their installation are not run.
"""

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import httpx
import rattler

_DOWNLOADS = 8
_ATTEMPTS = 3
_TIMEOUT_S = 60.0


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
        url = Path(archive["path"]).as_uri()
        records.append(rattler.RepoDataRecord(package, file_name, url, archive["channel"]))
        _write(f"+ {archive['name']} {archive['version']} {archive['build']}")
    await rattler.install(
        records,
        target_prefix=prefix,
        cache_dir=scratch / "packages",
        execute_link_scripts=False,
        show_progress=False,
    )
    _name_addresses(prefix, archives)


def _name_addresses(prefix: Path, archives: list[dict[str, str]]) -> None:
    """Write the addresses of the packages where rattler has written their files on this node."""
    urls = {Path(archive["path"]).as_uri(): archive["url"] for archive in archives}
    for file in (prefix / "conda-meta").glob("*.json"):
        document = json.loads(file.read_text("utf-8"))
        document["url"] = urls.get(document["url"], document["url"])
        file.write_text(json.dumps(document, indent=2), "utf-8")


async def _fetch(folder: Path, urls: dict[str, str]) -> None:
    """Download archives into files that are named by the digests they should have."""
    at_once = asyncio.Semaphore(_DOWNLOADS)
    # The certificates of this machine, and the proxies of the variables.
    async with httpx.AsyncClient(
        follow_redirects=True,
        verify=ssl.create_default_context(),
        timeout=_TIMEOUT_S,
        headers={"Accept-Encoding": "identity"},
    ) as client:

        async def fetch(name: str, url: str) -> None:
            async with at_once:
                for attempt in range(_ATTEMPTS):
                    try:
                        await _download(client, url, folder / name)
                    except httpx.TransportError:
                        if attempt == _ATTEMPTS - 1:
                            raise
                        await asyncio.sleep(2**attempt)
                    else:
                        break
            _write(f"< {url.rpartition('/')[2]}")

        async with asyncio.TaskGroup() as group:
            for name, url in urls.items():
                group.create_task(fetch(name, url))


async def _download(client: httpx.AsyncClient, url: str, target: Path) -> None:
    async with client.stream("GET", url) as response:
        if not response.is_success:
            raise ValueError(f"{url} was answered with the status {response.status_code}.")
        with target.open("wb") as file:
            async for piece in response.aiter_raw():
                file.write(piece)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the request says."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    scratch = Path(request["scratch"])
    if "urls" in request:
        folder = Path(request["folder"])
        folder.mkdir(exist_ok=True)
        run = _fetch(folder, request["urls"])
    elif "prefix" in request:
        run = _install(scratch, Path(request["prefix"]), request["archives"])
    else:
        run = _solve(scratch, request["channels"], request["specs"], request["cuda"])
    status = 0
    try:
        asyncio.run(run)
    except BaseExceptionGroup as group:
        _write(str(group.exceptions[0]).strip() or repr(group.exceptions[0]))
        status = 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the log has its words
        # The words of the solver, without lines of this program.
        _write(str(error).strip() or repr(error))
        status = 1
    # Threads of rattler that call Python while the interpreter ends would abort the process.
    os._exit(status)


main()
