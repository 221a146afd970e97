"""What was there comes back, exactly: contents, modes, links, index, merges and rebases under way; whatever was wrecked."""

import shutil
from pathlib import Path

import pytest

from outlast.workspace.restore import restore
from tests.workspace.workspace import BASE, Workspace, placed, same

# Each is built on a repository with two commits, `main` and a branch `other` at the first.
STATES = {
    "clean": "",
    "staged apart from unstaged": "echo 1 >> a.txt; git add a.txt; echo 2 >> a.txt; echo x > s; git add s; echo y > s",
    "staged and then deleted": "echo x > s; git add s; rm s; echo 1 >> a.txt; git add a.txt; rm a.txt",
    "untracked": "echo x > new; mkdir -p n/m; echo y > n/m/o; touch empty",
    "deleted": "rm a.txt; git rm -q sub/b.txt; git rm -q --cached c",
    "everything deleted": "rm -rf a.txt sub link run.sh c .gitignore",
    "everything deleted from the index": "git rm -q -r --cached .",
    "renamed": "git mv a.txt z.txt; mv c cc; git mv sub sub2; echo x >> z.txt",
    "intent to add": "echo x > ita; git add -N ita; echo y > gone; git add -N gone; rm gone; mkdir q; echo z > q/ita; git add -N q",
    "skip-worktree": "git update-index --skip-worktree a.txt sub/b.txt; echo edited >> a.txt; rm sub/b.txt",
    "assume-unchanged": "git update-index --assume-unchanged a.txt c; echo edited >> a.txt; rm c",
    "assume-unchanged and ignored": "echo 1 > x.ign; git add -f x.ign; git commit -qm x; git update-index --assume-unchanged x.ign; echo 2 > x.ign",
    "ignored but tracked": "echo 1 > x.ign; git add -f x.ign; mkdir build; echo o > build/o; git add -f build/o; echo 2 > x.ign",
    "exec bits": "chmod -x run.sh; chmod +x a.txt; echo x > e; chmod +x e; chmod +x c; git add c; chmod -x c",
    "exec bits with core.fileMode off": "git config core.fileMode false; chmod -x run.sh; chmod +x a.txt; echo x > e; chmod +x e",
    "links": "ln -s nowhere dangling; ln -s sub folder; ln -sf sub/b.txt link; ln -s / abs; mkdir l; ln -s ../a.txt l/up; git add l",
    "link to file and back": "rm link; seq 9 > link; rm c; ln -s a.txt c; rm -r sub; ln -s /etc sub",
    "file to folder": "rm a.txt; mkdir a.txt; echo x > a.txt/x; echo y > a.txt/y; git rm -q --cached c; rm c; mkdir c; echo q > c/q; git add c",
    "folder to file": "rm -r sub; echo x > sub",
    "folder to file, staged": "git rm -rq sub; echo x > sub; git add sub; rm sub; mkdir sub; echo y > sub/b.txt",
    "odd names": r"""echo 1 > $'new\nline'; echo 2 > $'\xff\xfe'; echo 3 > -dash; echo 4 > ' space '; echo 5 > $'tab\t"quote\\'
        mkdir $'d\xe9\n'; echo 6 > $'d\xe9\n/-x'; git add -- $'\xff\xfe' -dash; echo 7 >> $'\xff\xfe'; echo é > é; echo x > ':(top)x'; echo y > '*?['
        echo z > 'a.txt.outlast-1'; touch $(printf 'l%.0s' {1..255})""",
    "unmerged in mid-merge": "git checkout -q other; seq 50 > c; echo o >> a.txt; git add -A; git commit -qm o; git checkout -q main; echo m >> a.txt; git commit -qam m; git merge other || true; test -f .git/MERGE_HEAD",
    "half resolved merge": "git checkout -q other; seq 50 > c; echo o >> a.txt; git add -A; git commit -qm o; git checkout -q main; echo m >> a.txt; git commit -qam m; git merge other || true; seq 7 > c; git add c; echo x >> a.txt",
    "merge that deletes and changes": "git checkout -q other; git rm -q sub/b.txt; git commit -qm o; git checkout -q main; echo m >> sub/b.txt; git commit -qam m; git merge other || true; test -f .git/MERGE_HEAD",
    "rebase": "git checkout -q other; for i in 1 2 3; do echo o$i >> a.txt; git commit -qam o$i; done; git checkout -q main; echo m >> a.txt; git commit -qam m; git checkout -q other; git rebase main || true; test -d .git/rebase-merge",
    "rebase with a dirty autostash": "git config rebase.autoStash true; git checkout -q other; for i in 1 2; do echo o$i >> a.txt; git commit -qam o$i; done; git checkout -q main; echo m >> a.txt; git commit -qam m; git checkout -q other; echo q >> sub/b.txt; git rebase main || true; test -f .git/rebase-merge/autostash",
    "rebase by apply": "git checkout -q other; for i in 1 2; do echo o$i >> a.txt; git commit -qam o$i; done; git checkout -q main; echo m >> a.txt; git commit -qam m; git checkout -q other; git rebase --apply main || true; test -d .git/rebase-apply",
    "interactive rebase at an edit": "for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -qm f$i; done; GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2; test -d .git/rebase-merge; echo dirty >> f1; echo s > s; git add s",
    "cherry-pick": "git checkout -q other; for i in 1 2; do echo o$i >> a.txt; git commit -qam o$i; done; git checkout -q main; echo m >> a.txt; git commit -qam m; git cherry-pick other~1 other || true; test -f .git/CHERRY_PICK_HEAD",
    "revert": "for i in 1 2; do echo o$i >> a.txt; git commit -qam o$i; done; git revert --no-edit HEAD~1 || true; test -f .git/REVERT_HEAD",
    "bisect": "for i in 1 2 3 4 5 6; do echo $i >> a.txt; git commit -qam $i; done; git bisect start HEAD HEAD~5 -q; test -f .git/BISECT_LOG",
    "squash": "git checkout -q other; echo o > o; git add o; git commit -qm o; git checkout -q main; git merge -q --squash other; test -f .git/SQUASH_MSG",
    "am stopped": "git checkout -q other; echo o >> a.txt; git commit -qam o; git format-patch -q -1 --stdout > ../p; git checkout -q main; echo m >> a.txt; git commit -qam m; git am ../p || true; test -d .git/rebase-apply",
    "detached": "git checkout -q --detach HEAD~1; echo x >> a.txt; git add a.txt; echo y >> a.txt",
    "unborn branch": "git checkout -q --orphan fresh; git rm -rqf --cached .; echo x > x; git add x; echo y >> x",
    "index removed": "rm .git/index",
    "sparse cone": "mkdir one two; echo 1 > one/f; echo 2 > two/f; git add .; git commit -qm s; git sparse-checkout set --cone one; echo e >> one/f; mkdir -p two; echo in the way > two/f; echo u > two/u",
    "sparse patterns": "mkdir one two; echo 1 > one/f; echo 2 > two/f; git add .; git commit -qm s; git sparse-checkout set --no-cone '/one/' '!/sub/'; echo e >> one/f",
    "sparse index": "mkdir one two; echo 1 > one/f; echo 2 > two/f; git add .; git commit -qm s; git sparse-checkout set --cone --sparse-index one; echo e >> one/f; git add one; echo e2 >> one/f",
    "split index": "git update-index --split-index; echo x >> a.txt; git add a.txt; echo y >> a.txt; echo n > n; git add n",
    "split index by configuration": "git config core.splitIndex true; echo x >> a.txt; git add a.txt; echo y >> a.txt",
    "untracked cache": "git update-index --untracked-cache --force-untracked-cache; git status; echo x > new",
    "index version 4": "git update-index --index-version 4; echo x >> a.txt; git add a.txt; echo y >> a.txt",
    "many files": "mkdir many; (cd many; for i in $(seq 1500); do echo $i > f$i; done); git add many; for i in $(seq 100); do echo x >> many/f$i; done; rm many/f2*",
}  # fmt: skip

CRLF = r"printf 'x\r\ny\r\n' > crlf; printf 'x\ny\n' > lf; printf 'x\r\ny\n\r' > mixed; printf '\0\xff\r\n' > bin; printf '$Id$\r\n' > id"
CONVERSIONS = {
    "autocrlf": f"git config core.autocrlf true; {CRLF}; git add -A; git commit -qm c; printf 'z\\r\\n' >> crlf",
    "autocrlf input": f"git config core.autocrlf input; {CRLF}; git add -A; printf 'z\\r\\n' >> crlf",
    "text=auto": f"echo '* text=auto' > .gitattributes; {CRLF}; git add -A; git commit -qm c",
    "text=auto, since unset": f"echo '* text=auto' > .gitattributes; {CRLF}; touch -d yesterday *; git add -A; git commit -qm c; rm .gitattributes; git config core.safecrlf false",
    "autocrlf, since unset": f"git config core.autocrlf true; {CRLF}; touch -d yesterday *; git add -A; git commit -qm c; git config core.autocrlf false",
    "eol": f"echo '* text eol=crlf' > .gitattributes; {CRLF}; git add -A; git commit -qm c; rm lf; git checkout lf; printf 'lone\\n' > lone",
    "attributes below": f"mkdir at; cd at; echo '* text=auto' > .gitattributes; {CRLF}; git add crlf lf mixed bin; cd ..",
    "attributes in info": f"mkdir -p .git/info; echo '* text=auto' > .git/info/attributes; {CRLF}; git add -A",
    "ident": f"echo '* ident' > .gitattributes; {CRLF}; git add -A; git commit -qm c; rm id; git checkout id",
    "encoding": r"echo '*.u text working-tree-encoding=UTF-16LE' > .gitattributes; printf 'h\0i\0\n\0' > x.u; git add -A; git commit -qm c; printf 'y\0' >> x.u",
    "filter": r"""git config filter.rot.clean "tr a-z n-za-m"; git config filter.rot.smudge "tr a-z n-za-m"; echo '*.r filter=rot' > .gitattributes
        echo hello > x.r; git add -A; git commit -qm c; echo more >> x.r; echo new > y.r""",
}  # fmt: skip

COMMIT = "git -c user.name=n -c user.email=e commit -q --no-verify -m"
INSIDE = {
    "nested, clean": f"git init -q nest; cd nest; echo n > n; git add n; {COMMIT} n",
    "nested, dirty and staged": f"git init -q nest; cd nest; echo n > n; git add n; {COMMIT} n; echo s > s; git add s; echo d >> s; echo u > u; rm n",
    "nested without commits": "git init -q nest; cd nest; echo z > z; git add z; echo y > y",
    "nested and empty": "git init -q nest",
    "nested in nested": f"git init -q nest; cd nest; git init -q in; cd in; echo z > z; git add z; {COMMIT} z; echo y > y; cd ..; echo k > k; git add k",
    "nested on a branch": f"git init -q nest; cd nest; echo n > n; git add n; {COMMIT} n; git checkout -q -b side; echo x >> n; git stash -q; echo y >> n",
    "nested with an odd name": f"git init -q $'ne\\xffst\\n'; cd $'ne\\xffst\\n'; echo n > n; git add n; {COMMIT} n; echo x >> n",
    "added as a link to a commit": f"git init -q nest; cd nest; echo n > n; git add n; {COMMIT} n; cd ..; git add nest; echo x >> nest/n",
    "submodule": f"git init -q ../m; (cd ../m; echo m > m; git add m; {COMMIT} m); git -c protocol.file.allow=always submodule --quiet add ../m mod; git commit -qm sub; cd mod; echo d >> m; echo s > s; git add s; echo u > u",
    "submodule, not initialised": f"git init -q ../m; (cd ../m; echo m > m; git add m; {COMMIT} m); git -c protocol.file.allow=always submodule --quiet add ../m mod; git commit -qm sub; git submodule --quiet deinit -f mod",
    "submodule with an embedded git folder": f"git init -q mod; (cd mod; echo m > m; git add m; {COMMIT} m); git -c protocol.file.allow=always submodule --quiet add ./mod mod; git commit -qm sub; cd mod; echo d >> m; {COMMIT} ahead -a; echo e >> m",
}  # fmt: skip

WRECKS = {
    "deleted all": "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +",
    "reset, cleaned, switched, collected": """
        rm -rf .git/rebase-merge .git/rebase-apply .git/sequencer; git bisect reset; git merge --abort; git checkout -qf other || git checkout -qf -b w;
        git reset -q --hard; git clean -qffdx; git reflog expire --expire=now --all; git gc -q --prune=now; git stash clear""",
    "committed over": """
        rm -f .git/*_HEAD .git/MERGE_* .git/SQUASH_MSG; git rm -qr --cached --ignore-unmatch .; git -c core.attributesFile=/dev/null add -A;
        git commit -qm over; echo gone > a.txt; rm -rf sub c; mkdir c; echo in > c/in; echo more > more; git add more""",
}  # fmt: skip


def wreck_and_restore(place: Workspace, *, only_files: bool = False) -> None:
    """One save, and after every wreck it brings back the same picture; and so it does for another process."""
    before = place.picture()
    saved = place.save()
    same(before, place.picture(), "after the save")
    for name, script in WRECKS.items():
        place.sh(script, ok=False)
        place.restore(saved, force=True, with_secrets=True)
        after = place.picture()
        same(
            {"files": before["files"]} if only_files else before,
            {"files": after["files"]} if only_files else after,
            name,
        )
        place.anew()
    place.fsck()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", STATES)
def test_whatever_was_there_comes_back(name: str, place: Workspace) -> None:
    place.sh(STATES[name])
    wreck_and_restore(place)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", STATES)
def test_whatever_was_there_comes_back_with_the_repository(name: str, place: Workspace) -> None:
    """Its `.git` is gone, then the whole folder, then another repository was begun in its place, with settings of its own."""
    place.sh(STATES[name])
    before = place.picture()
    saved = place.save()
    for script in ("rm -rf .git", "find . -mindepth 1 -delete"):
        place.sh(script)
        place.anew()
        place.restore(saved)
        same(before, place.picture(), script)
        place.sh("git fsck --strict --no-dangling --connectivity-only")
    if name.startswith("sparse"):
        return
    place.sh("rm -rf .git; git init -q; git add -A; git commit -q --allow-empty -m anew")
    place.restore(saved, force=True)
    after = place.picture()
    unset = {key for key in before if "status" in key}
    same(
        {key: before[key] for key in before.keys() - unset}, {key: after[key] for key in after.keys() - unset}
    )
    place.fsck()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in INSIDE if "submodule" not in name])
def test_repositories_inside_come_back_with_the_one_around_them(name: str, place: Workspace) -> None:
    place.sh(INSIDE[name])
    before, saved = place.picture(), place.save()
    place.sh("find . -mindepth 1 -delete")
    place.restore(saved)
    same(before, place.picture())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_bytes_come_back_raw_whatever_git_would_make_of_them(name: str, place: Workspace) -> None:
    place.sh(CONVERSIONS[name])
    # Git calls such a file unchanged only as long as it does not look at its bytes.
    wreck_and_restore(place, only_files=name.endswith("since unset"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INSIDE)
def test_repositories_inside_come_back_with_their_state(name: str, place: Workspace) -> None:
    place.sh(INSIDE[name])
    wreck_and_restore(place)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name", ["staged apart from unstaged", "unmerged in mid-merge", "rebase", "odd names", "many files"]
)
def test_a_sha256_repository_comes_back(name: str, tmp_path: Path) -> None:
    with placed(tmp_path, BASE.replace("init -q", "init -q --object-format=sha256") + STATES[name]) as place:
        wreck_and_restore(place)


FOLLOWING = {
    ("unmerged in mid-merge", "git merge --abort"),
    ("unmerged in mid-merge", "git add -A; git commit -q --no-edit"),
    ("half resolved merge", "git checkout --ours a.txt; git add a.txt; git merge --continue"),
    ("rebase", "git rebase --abort"),
    ("rebase", "for i in 1 2 3; do seq $i > a.txt; git add -A; git rebase --continue || true; done; test ! -d .git/rebase-merge"),
    ("rebase", "git rebase --skip || true; git rebase --quit"),
    ("rebase with a dirty autostash", "git rebase --abort; git stash list"),
    ("rebase by apply", "git rebase --abort"),
    ("rebase by apply", "for i in 1 2; do seq $i > a.txt; git add -A; git rebase --continue || true; done; test ! -d .git/rebase-apply"),
    ("interactive rebase at an edit", "git add -A; git rebase --continue"),
    ("cherry-pick", "git cherry-pick --abort"),
    ("cherry-pick", "for i in 1 2; do seq $i > a.txt; git add -A; git cherry-pick --continue || true; done; test ! -d .git/sequencer"),
    ("revert", "git revert --abort"),
    ("revert", "seq 3 > a.txt; git add -A; git revert --continue"),
    ("bisect", "git bisect good; git bisect bad; git bisect reset"),
    ("am stopped", "git am --abort"),
    ("squash", "git commit -q --no-edit"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "script"), sorted(FOLLOWING))
def test_what_was_under_way_goes_on_or_back_as_if_nothing_had_been(
    name: str, script: str, place: Workspace, tmp_path: Path
) -> None:
    """Its twin, which was never wrecked, says how it must end."""
    place.sh(STATES[name])
    saved = place.save()
    shutil.copytree(place.folder, tmp_path / "twin", symlinks=True)
    twin = Workspace(tmp_path / "twin", tmp_path / "state")
    place.sh(WRECKS["reset, cleaned, switched, collected"], ok=False)
    place.sh("git branch -D other", ok=False)
    place.restore(saved, force=True)
    for each in (place, twin):
        each.sh(script)
        each.sh("git status", ok=False)
    ended, wanted = place.picture(), twin.picture()
    for picture in (ended, wanted):
        progress = picture.pop("progress")
        assert isinstance(progress, dict)
        picture["under way"] = [name for name in progress if name not in (b"ORIG_HEAD", b"AUTO_MERGE")]
    same(wanted, ended)
    twin.close()


# -- one save after another --------------------------------------------------------------------------------------------


def test_a_save_after_none_was_needed_has_what_changed_since_the_save_before(place: Workspace) -> None:
    """The save that was not made had read the file already."""
    place.write("a.txt", b"dirty\n")
    place.save()
    place.sh("touch -d '1 hour ago' a.txt; git commit -qam done")
    assert place.save_if_dirty() is None
    place.sh("echo more > more")
    assert place.content(place.save(), "a.txt") == b"dirty\n"
    place.write("a.txt", b"older\n")
    place.sh("touch -d '2 hours ago' a.txt c; git commit -qam older; rm more")
    assert place.save_if_dirty() is None
    assert place.content(place.save(), "a.txt") == b"older\n"


def test_a_folder_moved_away_and_back_is_in_the_next_save(place: Workspace) -> None:
    """Its files look as ever: only that they were gone between tells."""
    place.sh("mkdir other; echo o > other/o; git init -q nest; echo n > nest/n")
    first = place.save()
    place.sh("mv sub other nest ..")
    gone = place.save()
    assert place.content(gone, "sub/b.txt") is None
    place.sh("mv ../sub ../other ../nest .")
    back = place.save()
    assert place.held(back).tree == place.held(first).tree


def test_an_ignored_file_that_is_tracked_stays_in_every_save(place: Workspace) -> None:
    place.save()
    place.sh("echo 1 > x.ign; git add -f x.ign")
    for text in (b"1\n", b"2\n", b"2\n", b"3\n"):
        place.write("x.ign", text)
        assert place.content(place.save(), "x.ign") == text
    place.sh("git rm -qf --cached x.ign; echo 4 > x.ign")
    place.save()


def test_a_repository_inside_with_many_files_that_goes_and_comes(place: Workspace) -> None:
    """So many that the private index takes them in."""
    place.sh("git init -q nest; cd nest; for i in $(seq 1100); do echo $i > f$i; done")
    first = place.save()
    place.write("nest/f1", b"changed")
    second = place.save()
    assert place.content(second, "nest/f1") == b"changed"
    place.sh("mv nest ../away")
    assert place.content(place.save(), "nest/f2") is None
    place.sh("mv ../away nest; echo 1 > nest/f1")
    tree = place.held(first).tree
    assert place.held(place.save()).tree == tree
    shutil.rmtree(place.state)
    place.anew()
    assert place.held(place.save()).tree == tree


def test_a_touched_or_rewritten_file_of_equal_size_is_seen(place: Workspace) -> None:
    for number in range(20):
        place.write("a.txt", b"%03d" % number)
        place.write("untracked", b"%03d" % number)
        saved = place.save("beat")
        assert place.content(saved, "a.txt") == place.content(saved, "untracked") == b"%03d" % number


def test_every_save_of_a_run_comes_back_in_any_order(place: Workspace) -> None:
    made = []
    for name in ("staged apart from unstaged", "untracked", "deleted", "file to folder", "links"):
        place.sh("git reset -q --hard; git clean -qffdx")
        place.sh(STATES[name])
        made.append((place.save("beat"), place.picture(), name))
    for saved, picture, name in [*made, *reversed(made)]:
        place.restore(saved, force=True)
        same(picture, place.picture(), name)


def test_a_clean_tree_needs_no_save_whatever_git_makes_of_its_bytes(place: Workspace) -> None:
    for script in (
        "true",
        f"echo '* text=auto' > .gitattributes; {CRLF}; git add -A; git commit -qm c; git config core.safecrlf false",
        "mkdir one; echo 1 > one/f; git add .; git commit -qm s; git sparse-checkout set --cone one",
        "git checkout -q --detach",
    ):
        place.sh(script)
        place.sh(
            "find . -path ./.git -prune -o -type f -exec touch -d '1 hour ago' {} +; git update-index -q --refresh"
        )
        assert place.save_if_dirty() is None, script
        place.write("new", b"new")
        assert place.save_if_dirty() is not None, script
        (place.folder / "new").unlink()
    place.sh("git update-index --assume-unchanged one/f; echo edited > one/f")
    assert place.save_if_dirty() is not None, "git does not look there, we do"


def test_a_save_in_a_new_folder_is_whole(place: Workspace, tmp_path: Path) -> None:
    place.sh(STATES["staged apart from unstaged"])
    place.sh(INSIDE["nested, dirty and staged"])
    before = place.files()
    saved = place.save()
    inside = place.sh("git status --porcelain=v2", cwd=place.folder / "nest")
    restore.materialise(place.saver, place.held(saved), tmp_path / "to")
    new = Workspace(tmp_path / "to", tmp_path / "state")
    assert new.files() == before
    assert new.sh("git status --porcelain=v2", cwd=tmp_path / "to/nest") == inside
    assert new.sh("git diff --cached") == place.sh("git diff --cached")
    new.close()


def test_a_folder_is_saved_whether_it_is_a_repository_or_not(place: Workspace) -> None:
    """It becomes one, is one no more, and is another one: every file is in every save."""
    place.sh("mkdir n; echo z > n/z; touch -d '1 hour ago' n/z")
    for script in ("true", "git init -q n", "echo y > n/y", "rm -rf n/.git", "git init -q n/m; echo x > n/m/x", "git init -q n", "rm -rf n; mkdir n; echo q > n/q", "rm -rf n; echo n > n"):  # fmt: skip
        place.sh(script)
        saved = place.save()
        for path, (_, _, data) in place.files().items():
            if path != b"link":
                assert place.content(saved, path.decode()) == data, (script, path)
