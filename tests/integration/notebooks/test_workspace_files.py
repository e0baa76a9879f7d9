"""Files of a workspace through the portal, with a running notebook server and a stopped one."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import FilePayload, Page, expect

from slipway import Client
from slipway.cli.main import main
from slipway.errors import Conflict, NotFound
from tests.notebooks import NEWCOMER, PASSWORD, SERVERLESS, Person
from tests.portals import RunningPortal

pytestmark = pytest.mark.integration
FILES = "/projects/vision/workspace-files"
_UPLOAD = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def stopped(bob: Person) -> Person:
    """Bob, whose notebook server has run and stopped, so that there is a workspace."""
    bob.stop(bob.ready("once"))
    return bob


def put(person: Person, path: str, content: bytes, **query: str) -> httpx.Response:
    return person.api.post(
        f"{FILES}/content", params={"path": path, **query}, content=content, headers=_UPLOAD
    )


def read(person: Person, path: str, **query: str) -> httpx.Response:
    return person.api.get(f"{FILES}/content", params={"path": path, **query})


def names(person: Person, path: str = "", **query: str) -> dict[str, str]:
    answer = person.api.get(FILES, params={"path": path, **query})
    assert answer.status_code == 200, answer.text
    return {entry["name"]: entry["kind"] for entry in answer.json()["entries"]}


@pytest.mark.thorough
def test_files_are_changed_while_a_server_runs_and_after_it_stopped(
    running: RunningPortal, bob: Person
) -> None:
    server = bob.ready("files")
    desk = bob.open(server)
    assert names(bob)["welcome.ipynb"] == "file"

    made = put(bob, "räume.csv", b"x,y\n1,2\n")
    assert made.status_code == 200, made.text
    assert made.json()["size_bytes"] == 8
    kernel = desk.kernel()
    # The kernel sees it, and may change it: it belongs to the user of the project.
    code = "f = open('räume.csv', 'a'); f.write('3,4\\n'); f.close(); print('written')"
    assert "written" in desk.run(kernel, code)
    assert read(bob, "räume.csv").content == b"x,y\n1,2\n3,4\n"

    refused = put(bob, "räume.csv", b"other")
    assert refused.status_code == 409
    assert (refused.json()["code"], refused.json()["field"]) == ("exists", "path")
    assert put(bob, "räume.csv", b"other", replace="true").status_code == 200

    # What user code prepares against the portal leads nowhere.
    code = "import os; os.symlink('/etc/passwd', 'passwd'); os.symlink('/', 'root'); os.mkfifo('p')"
    desk.run(kernel, code)
    assert {"passwd": "link", "root": "link", "p": "special"}.items() <= names(bob).items()
    for path in ("passwd", "root", "root/etc/passwd", "p"):
        assert read(bob, path).status_code in (404, 409), path
    assert put(bob, "root/tmp/x", b"").status_code == 404

    stopped = bob.stop(server)
    assert stopped["state"] == "stopped"
    made = bob.api.put(f"{FILES}/folders", json={"path": "data"})
    assert made.status_code == 201, made.text
    moved = bob.api.patch(FILES, json={"path": "räume.csv", "target": "data/rooms.csv"})
    assert moved.json()["path"] == "data/rooms.csv", moved.text
    big = os.urandom(9 * 1024**2)
    assert put(bob, "data/big.bin", big).status_code == 200
    assert read(bob, "data/big.bin").content == big
    with zipfile.ZipFile(io.BytesIO(read(bob, "data").content)) as archive:
        assert archive.read("rooms.csv") == b"other"
        assert archive.read("big.bin") == big
    for path in ("data", "passwd", "root", "p"):
        assert bob.api.delete(FILES, params={"path": path}).status_code == 204, path
    assert not {"data", "passwd", "root", "p"} & set(names(bob))
    verbs = [
        event["verb"]
        for event in running.client("alice")
        .get("/projects/vision/audit", params={"limit": 50})
        .json()["items"]
    ]
    assert {"workspace.upload", "workspace.move", "workspace.delete"} <= set(verbs)


def test_a_personal_folder_exists_for_its_owner_alone(
    running: RunningPortal, stopped: Person
) -> None:
    bob = stopped
    assert put(bob, "diary-of-bob.txt", b"mine", area="personal", replace="true").is_success
    assert read(bob, "diary-of-bob.txt", area="personal").content == b"mine"
    assert "diary-of-bob.txt" not in names(bob)
    gina = Person(running, NEWCOMER, PASSWORD)
    # No other test starts a server for her: she has no folder. With one of her own she sees hers.
    nothing = gina.api.get(FILES, params={"area": "personal"})
    assert (nothing.status_code, nothing.json()["code"]) == (409, "no_workspace")
    gina.stop(gina.ready("hers"))
    assert "diary-of-bob.txt" not in names(gina, area="personal")
    assert read(gina, "diary-of-bob.txt", area="personal").status_code == 404
    assert (
        read(
            gina, f"../person-{bob.api.get('/whoami').json()['user']['id']}/diary-of-bob.txt"
        ).status_code
        == 422
    )
    with running.client("charlie") as charlie:
        assert charlie.get(FILES).status_code == 404
    events: list[dict[str, Any]] = (
        running.client("alice").get("/projects/vision/audit", params={"limit": 20}).json()["items"]
    )
    assert "diary-of-bob.txt" not in json.dumps(events)


def test_files_move_between_the_folders_of_one_person(
    running: RunningPortal, stopped: Person
) -> None:
    bob = stopped
    assert put(bob, "moving/deep/a.txt", b"mine").status_code == 404
    made = put(bob, "moving/deep/a.txt", b"mine", parents="true")
    assert made.status_code == 200, made.text
    across = {"path": "moving", "target": "only-of-bob", "target_area": "personal"}
    moved = bob.api.patch(FILES, json=across)
    assert moved.status_code == 200, moved.text
    assert "moving" not in names(bob)
    assert read(bob, "only-of-bob/deep/a.txt", area="personal").content == b"mine"
    assert put(bob, "a.txt", b"shared").is_success
    back = {"path": "only-of-bob/deep/a.txt", "area": "personal", "target": "a.txt"}
    back |= {"target_area": "shared"}
    refused = bob.api.patch(FILES, json=back)
    assert (refused.status_code, refused.json()["code"]) == (409, "exists")
    assert read(bob, "a.txt").content == b"shared"
    assert bob.api.patch(FILES, json=back | {"replace": True}).is_success
    assert read(bob, "a.txt").content == b"mine"
    # Somebody else without a personal folder there moves nothing, and reaches nothing of Bob's.
    with running.client(SERVERLESS) as other:
        take = {"path": "a.txt", "target": "a.txt", "target_area": "personal"}
        refused = other.patch(FILES, json=take)
        assert (refused.status_code, refused.json()["code"]) == (409, "no_workspace")
        refused = other.patch(FILES, json=back | {"path": "only-of-bob"})
        assert (refused.status_code, refused.json()["code"]) == (409, "no_workspace")
    assert read(bob, "a.txt").content == b"mine"
    with running.client("alice") as alice:
        events = alice.get("/projects/vision/audit", params={"limit": 20}).text
    assert "workspace.move" in events
    assert "only-of-bob" not in events
    for path, area in (("a.txt", "shared"), ("only-of-bob", "personal")):
        gone = bob.api.delete(FILES, params={"path": path, "area": area})
        assert gone.status_code == 204


def test_a_browser_uploads_a_folder_lists_what_is_left_out_and_moves_a_file(
    stopped: Person, page: Page, tmp_path: Path
) -> None:
    folder = tmp_path / "images"
    for name in ("a.txt", "train/b.txt", "train/deep/c.bin", "bad\u202ename.txt", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    assert put(stopped, "images/a.txt", b"before", parents="true").is_success
    page.goto(f"{stopped.portal}/p/vision/notebooks/workspace")
    page.get_by_label("Upload a folder with everything in it").set_input_files(folder)
    summary = page.get_by_role("status").filter(has_text="left out")
    expect(summary).to_contain_text("2 of 5 uploaded, 3 left out.")
    rows = page.locator("#workspace-uploads li")
    expect(rows.filter(has_text="images/.git")).to_contain_text("Hidden")
    expect(rows.filter(has_text="name.txt")).to_contain_text("U+202E, which is not allowed")
    expect(rows.filter(has_text="images/a.txt")).to_contain_text("There is already a file")
    page.get_by_role("button", name="Replace images/a.txt").click()
    expect(summary).to_contain_text("3 of 5 uploaded, 2 left out.")
    with page.expect_navigation():
        page.get_by_role("button", name="Show the folder").click()
    assert read(stopped, "images/a.txt").content == b"a.txt"
    assert read(stopped, "images/train/deep/c.bin").content == b"train/deep/c.bin"
    assert names(stopped, "images", hidden="true") == {"a.txt": "file", "train": "folder"}

    page.get_by_role("link", name="Rename or move images").click()
    page.get_by_role("region", name="Choose a folder").get_by_role("link", name="Personal").click()
    expect(page.get_by_role("combobox", name="Folder")).to_have_value("personal")
    page.get_by_label("New path").fill("images-of-bob")
    page.get_by_role("button", name="Rename or move").click()
    expect(page.get_by_text("It is images-of-bob in the personal folder now.")).to_be_visible()
    expect(page.get_by_role("link", name="images-of-bob", exact=True)).to_be_visible()
    assert "images" not in names(stopped)
    gone = stopped.api.delete(FILES, params={"path": "images-of-bob", "area": "personal"})
    assert gone.status_code == 204


@pytest.mark.usefixtures("stopped")
def test_the_sdk_and_the_command_line_upload_a_folder(
    running: RunningPortal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "code"
    for name in ("run.py", "lib/a.py", ".env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    sent: list[tuple[str, int, int]] = []
    with Client(running.url, running.tokens["bob"]) as client:
        files = client.workspaces
        result = files.upload_folder(
            folder, "code", project="vision", progress=lambda *part: sent.append(part)
        )
        assert [entry.path for entry in result.uploaded] == ["code/lib/a.py", "code/run.py"]
        assert {entry.path: entry.reason for entry in result.left_out} == {
            ".env": "hidden: its name begins with a dot",
            "link": "a link",
        }
        assert ("lib/a.py", 8, 8) in sent
        assert {entry.name for entry in files.list("code", project="vision").entries} == {
            *("lib", "empty", "run.py")
        }
        again = files.upload_folder(folder, "code", project="vision", hidden=True)
        assert [entry.path for entry in again.uploaded] == ["code/.env"]
        assert [entry.path for entry in again.left_out] == ["lib/a.py", "link", "run.py"]
        with pytest.raises(NotFound):
            files.upload_folder(folder, "code", project="missing")
        files.delete("code", project="vision")
    for name, value in (("URL", running.url), ("TOKEN", running.tokens["bob"])):
        monkeypatch.setenv(f"SLIPWAY_{name}", value)
    monkeypatch.setenv("SLIPWAY_CONFIG_DIR", str(tmp_path / "config"))
    workspace = ("workspace", *("upload", str(folder), "--to", "cli", "--project", "vision"))
    capsys.readouterr()
    assert main(workspace) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["cli/code/lib/a.py", "cli/code/run.py"]
    assert "2 files are in the workspace; 2 are left out." in shown.err
    assert "link: a link" in shown.err
    move = ("workspace", "mv", "cli/code", "code-of-bob", "--to-personal", "--project", "vision")
    assert main(move) == 0
    assert "It is code-of-bob now." in capsys.readouterr().out
    for path, more in (("cli", ()), ("code-of-bob", ("--personal",))):
        assert main(("workspace", "rm", path, "--yes", *more, "--project", "vision")) == 0


@pytest.mark.usefixtures("stopped")
def test_the_sdk_moves_files(running: RunningPortal, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from here")
    with Client(running.url, running.tokens["bob"]) as client:
        files = client.workspaces
        assert files.upload(tmp_path / "a.txt", "sdk.txt", project="vision").name == "sdk.txt"
        with pytest.raises(Conflict) as refused:
            files.upload(tmp_path / "a.txt", "sdk.txt", project="vision")
        assert refused.value.next_step
        assert files.make_folder("sdk", project="vision").kind == "folder"
        assert files.move("sdk.txt", "sdk/b.txt", project="vision").path == "sdk/b.txt"
        with files.download("sdk/b.txt", project="vision") as content:
            assert b"".join(content) == b"from here"
        files.delete("sdk", project="vision")
        assert "sdk" not in {entry.name for entry in files.list(project="vision").entries}


def test_a_browser_uploads_renames_previews_and_deletes(stopped: Person, page: Page) -> None:
    page.goto(f"{stopped.portal}/p/vision/notebooks/workspace")
    hostile = b"<script>document.title = 'stolen'</script>\n"
    page.get_by_label("Upload files to this folder").set_input_files(
        [
            FilePayload(name="plot.md", mimeType="text/plain", buffer=b"# Title\n" + hostile),
            FilePayload(name="run.py", mimeType="text/plain", buffer=b"print(1)\n"),
        ]
    )
    expect(page.get_by_role("link", name="plot.md", exact=True)).to_be_visible()
    page.get_by_label("Upload files to this folder").set_input_files(
        [FilePayload(name="run.py", mimeType="text/plain", buffer=b"print(2)\n")]
    )
    expect(page.get_by_text("There is already a file of this name.")).to_be_visible()
    with page.expect_navigation():  # the page is loaded again when all uploads have ended
        page.get_by_role("button", name="Replace run.py").click()
    expect(page.get_by_role("button", name="Replace run.py")).to_have_count(0)
    page.get_by_role("link", name="plot.md", exact=True).click()
    expect(page.get_by_role("heading", name="Title")).to_be_visible()
    assert "stolen" not in page.title()
    page.get_by_role("link", name="Rename or move").click()
    page.get_by_label("New path").fill("report.md")
    page.get_by_role("button", name="Rename or move").click()

    # A folder is chosen by clicks, and one that is not there is named.
    assert put(stopped, "texts/old & <b>/a.txt", b"a", parents="true").is_success
    page.get_by_role("link", name="Rename or move report.md").click()
    choice = page.get_by_role("region", name="Choose a folder")
    choice.get_by_role("link", name="texts").click()
    choice.get_by_role("link", name="old & <b>").click()
    expect(choice).to_contain_text("There is no folder in it.")
    expect(page.get_by_label("New path")).to_have_value("texts/old & <b>/report.md")
    page.goto(page.url.replace("&to=texts", "&to=absent"))
    expect(choice).to_contain_text("There is no such file or folder in the workspace.")
    page.go_back()
    page.get_by_role("button", name="Rename or move").click()
    expect(page.get_by_text("It is texts/old & <b>/report.md now.")).to_be_visible()
    page.get_by_role("link", name="Delete report.md").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("report.md deleted.")).to_be_visible()
    expect(page.get_by_role("link", name="report.md", exact=True)).to_have_count(0)


def test_a_browser_uploads_a_folder_that_is_dropped(
    stopped: Person, page: Page, tmp_path: Path
) -> None:
    folder = tmp_path / "dropped"
    for name in ("a.txt", "train/deep/b.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "empty").mkdir()
    page.goto(f"{stopped.portal}/p/vision/notebooks/workspace")
    box = page.locator("#workspace-hint").bounding_box()
    assert box is not None
    # A drop as the desktop makes it: a page's own script may not make one with folders.
    devtools = page.context.new_cdp_session(page)
    for event in ("dragEnter", "dragOver", "drop"):
        drag = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        place = {"x": box["x"] + 5, "y": box["y"] + 5}
        devtools.send("Input.dispatchDragEvent", {"type": event, "data": drag, **place})
    expect(page.get_by_role("link", name="dropped", exact=True)).to_be_visible()
    assert names(stopped, "dropped/empty") == {}
    assert read(stopped, "dropped/a.txt").content == b"a.txt"
    assert read(stopped, "dropped/train/deep/b.bin").content == b"train/deep/b.bin"
    assert stopped.api.delete(FILES, params={"path": "dropped"}).status_code == 204
