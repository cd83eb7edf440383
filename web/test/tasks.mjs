// What people do with the console, from the login to the end.
import assert from "node:assert/strict";
import { close, loaded, login, open, visit } from "./browser.mjs";
import { Skip, test, until } from "./harness.mjs";

const LUN = "e2e-disk";
const GROUP = "e2e-hosts";
const TARGET = "iqn.2026-11.example.tarn:e2e";
const INITIATOR = "iqn.1993-08.org.debian:01:e2e";
const PORTAL = "127.0.0.1:3465";
const SECRET = "e2e-secret-e2e-secret";

const button = (page, name) => page.getByRole("button", { name, exact: true });
const dialog = (page) => page.getByRole("dialog");

/** Asks the server as the page would. */
const ask = (page, path) => page.evaluate(async (at) => (await fetch(`/api/v1/${at}`)).json(), path);

/** Confirms the plan that is shown. */
async function confirm(page, verb) {
  await dialog(page).getByRole("table", { name: "Steps of the plan" }).waitFor();
  await button(dialog(page), verb).click();
  await dialog(page).waitFor({ state: "detached" });
}

/** Removes what the tests made, through the pages where it is removed. */
async function removeAll(page) {
  const luns = await ask(page, "luns");
  for (const { spec } of luns.filter(({ spec: { id } }) => id.startsWith("e2e-"))) {
    await visit(page, `luns/${spec.id}`);
    await button(page, "Remove").click();
    await confirm(page, "Remove");
    await page.waitForURL(/#\/luns$/);
  }
  for (const [path, key, hash] of [["targets", ({ spec }) => spec.name, "targets"], ["groups", ({ id }) => id, "groups"], ["users", ({ name }) => name, "users"]]) {
    for (const name of (await ask(page, path)).map(key).filter((each) => /(^|:)e2e/.test(each))) {
      await visit(page, hash);
      await button(page, `Remove ${name}`).click();
      await confirm(page, "Remove");
    }
  }
}

/** Presses Tab until what has the focus is called so, as somebody without a mouse does. */
async function tabTo(page, name) {
  for (let tries = 0; tries < 60; tries += 1) {
    const isThere = await page.evaluate((wanted) => {
      const { activeElement: at } = document;
      const label = at?.labels?.[0]?.innerText ?? at?.innerText ?? "";
      return label.split("\n")[0].trim() === wanted;
    }, name);
    if (isThere) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never came to ${name}`);
}

async function fillByKeyboard(page, name, text) {
  await tabTo(page, name);
  await page.keyboard.press("Control+A");
  await page.keyboard.type(text);
}

async function pressByKeyboard(page, name) {
  await tabTo(page, name);
  await page.keyboard.press("Enter");
}

/** A step of the wizard takes the focus a moment after it appears; who types before that loses it. */
const begun = (page) => until(() => page.evaluate(
  () => document.activeElement === document.querySelector("form.step input, form.step select")), "the step has the focus");

/** The wizard without a mouse: a memory disk for one initiator. */
export async function wizardByKeyboard(page, { portal = PORTAL, initiator = INITIATOR } = {}) {
  await visit(page, "new-disk");
  await page.getByLabel("Id", { exact: true }).waitFor();
  await begun(page);
  await fillByKeyboard(page, "Id", LUN);
  await tabTo(page, "File");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await fillByKeyboard(page, "Size", "64M");
  await pressByKeyboard(page, "Next");
  await page.getByLabel("Portal").waitFor();
  await begun(page);
  await fillByKeyboard(page, "Name", TARGET);
  await fillByKeyboard(page, "Portal", portal);
  await pressByKeyboard(page, "Next");
  await page.getByText("Who sees the disk").waitFor();
  await begun(page);
  const choice = page.getByRole("radio", { name: /These initiators/ });
  if (!(await choice.isChecked())) {
    await tabTo(page, "An existing group");
    await page.keyboard.press("ArrowDown");
  }
  await fillByKeyboard(page, "Id of the group", GROUP);
  await fillByKeyboard(page, "Initiators", initiator);
  await pressByKeyboard(page, "Next");
  await page.getByRole("table", { name: "Steps of the plan" }).waitFor();
  await pressByKeyboard(page, "Create disk");
}

function addWizardTests({ browser, world }) {
  const bases = [world.base, world.empty].filter(Boolean);

  test("the wizard leads by keyboard alone to a disk and the commands to reach it", async () => {
    for (const base of bases) {
      const page = await open(browser, base);
      await login(page, world.token);
      await wizardByKeyboard(page);
      await page.getByText("as LUN 0").waitFor();
      const commands = await page.getByLabel("commands for Linux", { exact: true }).textContent();
      assert.match(commands, new RegExp(`iscsiadm -m node -T ${TARGET} -p 127.0.0.1:3465 --login`));
      const lun = (await ask(page, "luns")).find(({ spec }) => spec.id === LUN);
      assert.deepEqual([lun.kind, lun.size_bytes, lun.shown_by.map(({ target, groups }) => [target, groups])],
        ["memory", 64 << 20, [[TARGET, [GROUP]]]]);
      const [access] = (await ask(page, `access?initiator=${INITIATOR}`)).filter(({ target }) => target === TARGET);
      assert.deepEqual([access.may_login, access.luns.map(({ id }) => id)], [true, [LUN]]);
      await removeAll(page);
      await close(page);
    }
  });

  test("a wizard that fails leaves nothing behind, and asks for all of it at once", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await page.route("**/api/v1/config/edits*", (route) => (!route.request().url().includes("plan=true")
      ? route.fulfill({ status: 409, contentType: "application/problem+json", body: JSON.stringify({ type: "apply-failed", title: "The change failed and was undone", status: 409, detail: "port 3465 is in use; choose another" }) })
      : route.continue()));
    await visit(page, "new-disk");
    await page.getByLabel("Id", { exact: true }).fill(LUN);
    await page.getByText("Memory", { exact: true }).click();
    await button(page, "Next").click();
    await page.getByLabel("Name", { exact: true }).fill(TARGET);
    await page.getByLabel("Portal").fill(PORTAL);
    await button(page, "Next").click();
    await page.getByText("All initiators that may log in").click();
    await page.getByText("A new user").click();
    await page.getByLabel("Name of the user").fill("e2e-user");
    await page.getByLabel("Secret").fill(SECRET);
    await button(page, "Next").click();
    await page.getByText("is the only one that may log in").waitFor();
    await button(page, "Create disk").click();
    await page.getByText("port 3465 is in use; choose another").waitFor();
    assert.deepEqual((await ask(page, "users")).filter(({ name }) => name === "e2e-user"), []);
    await close(page);
  });
}

function addChangeTests({ browser, world }) {
  test("a disk is renamed and removed, each after its plan, and does not shrink", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await wizardByKeyboard(page);
    await page.getByText("as LUN 0").waitFor();
    await visit(page, `luns/${LUN}`);
    await button(page, "Rename").click();
    await page.getByLabel("New id").fill(`${LUN}-2`);
    await button(page, "Plan").click();
    await confirm(page, "Rename");
    await page.getByRole("heading", { name: `${LUN}-2`, level: 1 }).waitFor();
    const lun = (await ask(page, "luns")).find(({ spec }) => spec.id === `${LUN}-2`);
    assert.deepEqual(lun.shown_by.map(({ target }) => target), [TARGET]);
    await button(page, "Resize").click();
    await page.getByLabel("New size").fill("1M");
    assert.equal(await button(page, "Plan").isDisabled(), true);
    await page.getByText("a unit does not shrink").waitFor();
    await button(dialog(page), "Cancel").click();
    await removeAll(page);
    assert.deepEqual((await ask(page, "luns")).filter(({ spec }) => spec.id.startsWith("e2e-")), []);
    await close(page);
  });

  test("a disk of a file grows", async () => {
    if (!world.empty) throw new Skip("files are made by the mock only; tests of the daemon have this one");
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "luns/database");
    await button(page, "Resize").click();
    await page.getByLabel("New size").fill("600G");
    await button(page, "Plan").click();
    await dialog(page).getByText(/size=600G/).waitFor();
    await confirm(page, "Resize");
    await page.getByText("644,245,094,400 bytes").waitFor();
    await close(page);
  });

  test("a medium is ejected and loaded, and another one in its place", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "luns/golden");
    await button(page, "Eject").click();
    await button(dialog(page), "Eject").click();
    await dialog(page).waitFor({ state: "detached" });
    await page.getByText("ejected", { exact: true }).waitFor();
    await button(page, "Load").click();
    await button(dialog(page), "Load").click();
    await page.getByText("loaded", { exact: true }).waitFor();
    const golden = async () => (await ask(page, "luns")).find(({ spec }) => spec.id === "golden");
    const { medium, spec: { store }, serial } = await golden();
    assert.deepEqual(medium, { loaded: true, prevented_by: [] });
    for (const other of ["mem:2M?removable", store]) {
      await button(page, "Eject").click();
      await button(dialog(page), "Eject").click();
      await page.getByText("ejected", { exact: true }).waitFor();
      await button(page, "Load").click();
      await dialog(page).getByText("Another medium").click();
      await dialog(page).getByLabel("STORE", { exact: true }).fill("mem:2M");
      await dialog(page).getByText("a medium needs the option removable").waitFor();
      assert.equal(await button(dialog(page), "Plan").isDisabled(), true);
      await dialog(page).getByLabel("STORE", { exact: true }).fill(other);
      await button(dialog(page), "Plan").click();
      await confirm(page, "Load");
      await until(async () => { const lun = await golden(); return lun.medium.loaded && lun.spec.store === other; }, `${other} is loaded`);
      await page.getByText("loaded", { exact: true }).waitFor();
    }
    assert.equal((await golden()).serial, serial);
    await close(page);
  });

  test("who has reserved a LUN is shown, and the end of that is asked twice", async () => {
    if (!world.empty) throw new Skip("initiators with reservations are in the mock only");
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "luns/database");
    const rows = page.getByLabel("Registrations");
    await rows.getByText("iqn.1993-08.org.debian:01:node-a").waitFor();
    assert.deepEqual(await rows.getByText(/^(holder|no session)$/).allTextContents(), ["no session", "holder"]);
    await button(page, "Clear").click();
    assert.ok(await button(dialog(page), "Clear").isDisabled());
    await page.getByLabel("Type database to confirm").fill("database");
    await button(dialog(page), "Clear").click();
    await page.getByText("Nobody has reserved it, and nobody is registered.").waitFor();
    assert.deepEqual(await ask(page, "luns/database/reservations"), { registered: 0, aptpl: false, lost: false });
    await close(page);
  });

  test("a snapshot is taken, cloned, rolled back to and removed", async () => {
    if (!world.empty) throw new Skip("file systems with snapshots are in the mock only");
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "luns/database");
    await button(page, "Take snapshot").click();
    await page.getByLabel("Name", { exact: true }).fill("../up");
    assert.ok(await button(dialog(page), "Take").isDisabled());
    await page.getByLabel("Name", { exact: true }).fill("before-upgrade");
    await button(dialog(page), "Take").click();
    await dialog(page).waitFor({ state: "detached" });
    await page.getByText("before-upgrade", { exact: true }).waitFor();
    await button(page, "Roll back").click();
    await dialog(page).getByText(/All data written since .* is gone/).waitFor();
    assert.ok(await button(dialog(page), "Roll back").isDisabled());
    await page.getByLabel("Type database to confirm").fill("database");
    await button(dialog(page), "Roll back").click();
    await dialog(page).waitFor({ state: "detached" });
    await button(page, "Clone").click();
    await button(dialog(page), "Clone").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.ok((await ask(page, "luns")).some(({ spec }) => spec.id === "database-clone"));
    await page.getByLabel("Snapshots").getByRole("button", { name: "Remove" }).click();
    await button(dialog(page), "Remove").click();
    await page.getByText("There are none.").waitFor();
    assert.deepEqual(await ask(page, "luns/database/snapshots"), []);
    await close(page);
  });

  test("targets, groups and users are added, changed and removed", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "groups");
    await button(page, "Add group").click();
    await page.getByLabel("Id", { exact: true }).fill(GROUP);
    await page.getByLabel("Initiators").fill(`${INITIATOR}\n192.0.2.0/24`);
    await button(page, "Plan").click();
    await confirm(page, "Add");
    await visit(page, "users");
    await button(page, "Add user").click();
    await page.getByLabel("Name", { exact: true }).fill("e2e-user");
    await page.getByLabel("Secret", { exact: true }).fill("short");
    await page.getByText("5 bytes; 12 to 128 are needed").waitFor();
    await page.getByLabel("Secret", { exact: true }).fill(SECRET);
    await button(page, "Add").click();
    await dialog(page).waitFor({ state: "detached" });
    await visit(page, "targets");
    await button(page, "Add target").click();
    await page.getByLabel("Name", { exact: true }).fill(TARGET);
    await page.getByLabel("Portals").fill(PORTAL);
    await page.getByLabel("e2e-user").check();
    await button(page, "Plan").click();
    await confirm(page, "Add");
    await button(page, `Edit ${TARGET}`).click();
    await page.getByLabel("Alias").fill("Test");
    await button(page, "Plan").click();
    await confirm(page, "Change");
    const { spec } = (await ask(page, "targets")).find((each) => each.spec.name === TARGET);
    assert.deepEqual([spec.alias, spec.auth, spec.portals.map(({ bind }) => bind)], ["Test", ["e2e-user"], [PORTAL]]);
    assert.equal(JSON.stringify(await ask(page, "users")).includes(SECRET), false);
    await removeAll(page);
    await close(page);
  });

  test("a target exports a LUN to a group, and then does not", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const [{ spec: { name, luns: before = [] } }] = await ask(page, "targets");
    const [{ spec: { id } }] = await ask(page, "luns");
    const [{ id: group }] = await ask(page, "groups");
    await visit(page, `targets/${encodeURIComponent(name)}`);
    await button(page, "Add LUN").click();
    await page.getByLabel("Unit", { exact: true }).fill(`${id}-x`);
    await dialog(page).getByText("there is no such LUN").waitFor();
    await page.getByLabel("Unit", { exact: true }).fill(id);
    await page.getByLabel("LUN", { exact: true }).fill("77");
    await dialog(page).getByLabel(group, { exact: true }).check();
    await button(page, "Plan").click();
    await confirm(page, "Add");
    const views = async () => (await ask(page, "targets")).find(({ spec }) => spec.name === name).spec.luns;
    assert.deepEqual((await views()).find(({ lun }) => lun === 77), { lun: 77, id, groups: [group] });
    await button(page, "Remove LUN 77").click();
    await confirm(page, "Remove");
    assert.deepEqual((await views()).map(({ lun }) => lun), before.map(({ lun }) => lun));
    await close(page);
  });

  test("named stores, NBD servers and quotas are added, changed and removed", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const [{ spec: { id: lun } }] = await ask(page, "luns");
    const sections = [
      ["stores", "store", "e2e-part", { Id: "e2e-part", Store: "mem:16M" }, { Store: "mem:32M" }, ({ store }) => store === "mem:32M"],
      ["nbd", "NBD server", "127.0.0.1:3467", { Address: "127.0.0.1:3467", Exports: [lun] }, { "Groups that find them": ["*"] }, ({ groups }) => groups?.length === 1],
      ["quotas", "quota", "owner:e2e", { Owner: "e2e", "Provisioned, at most": "1T" }, { "Provisioned, at most": "2T" }, ({ spec }) => spec.provisioned === "2T"],
    ];
    const fill = async (values) => {
      for (const [label, value] of Object.entries(values)) {
        if (typeof value === "string") await dialog(page).getByLabel(label, { exact: true }).fill(value);
        else if (value[0] === "*") await dialog(page).getByRole("group", { name: label }).getByRole("checkbox").first().check();
        else for (const each of value) await dialog(page).getByRole("group", { name: label }).getByLabel(each, { exact: true }).check();
      }
    };
    for (const [path, one, name, values, more, isChanged] of sections) {
      const nameOf = (each) => each.name ?? each.id ?? each.socket ?? each.bind;
      const found = async () => (await ask(page, path)).find((each) => nameOf(each) === name);
      await visit(page, path);
      await button(page, `Add ${one}`).click();
      assert.equal(await button(dialog(page), "Plan").isDisabled(), true, `${path}: nothing is given`);
      await fill(values);
      await button(page, "Plan").click();
      await confirm(page, "Add");
      assert.ok(await found(), `${path}: ${name} is there`);
      await button(page, `Edit ${name}`).click();
      await fill(more);
      await button(page, "Plan").click();
      await confirm(page, "Change");
      assert.ok(isChanged(await found()), `${path}: ${JSON.stringify(await found())}`);
      await button(page, `Remove ${name}`).click();
      await confirm(page, "Remove");
      assert.equal(await found(), undefined);
    }
    await close(page);
  });

  test("a group of HyperSCSI and its devices are added by keyboard, changed and removed", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const [{ spec: { id: first } }, { spec: { id: second } }] = await ask(page, "luns");
    const NAME = "e2e-lab at udp:127.0.0.1:3468";
    const group = async () => (await ask(page, "hyperscsi")).find(({ name }) => name === NAME);
    await visit(page, "hyperscsi");
    await pressByKeyboard(page, "Add group");
    await dialog(page).waitFor();
    for (const [label, value] of [["Name", "e2e-lab"], ["Address", "127.0.0.1:3468"], ["New password", "short"]]) await fillByKeyboard(page, label, value);
    await dialog(page).getByText("5 bytes; 8 to 128 are needed").waitFor();
    await fillByKeyboard(page, "New password", "e2e-password");
    await fillByKeyboard(page, "Unit", `${first}-x`);
    await dialog(page).getByText("there is no such LUN").waitFor();
    await fillByKeyboard(page, "Unit", first);
    await pressByKeyboard(page, "Plan");
    await dialog(page).getByRole("table", { name: "Steps of the plan" }).waitFor();
    await pressByKeyboard(page, "Add");
    await dialog(page).waitFor({ state: "detached" });
    const { password, spec } = await group();
    const devices = async () => (await group()).spec.device.map(({ id, level, readonly }) => [id, level, readonly ?? false]);
    assert.deepEqual([password, spec.profile, await devices()], ["file", "wired", [[first, "encrypt", false]]]);
    assert.equal(JSON.stringify([await ask(page, "hyperscsi"), await ask(page, "config")]).includes("e2e-password"), false);
    await page.getByRole("link", { name: "e2e-lab", exact: true }).click();
    await page.getByRole("heading", { name: "e2e-lab", level: 1 }).waitFor();
    await button(page, "Add device").click();
    await dialog(page).getByLabel("Unit", { exact: true }).fill(first);
    await dialog(page).getByText("the group has this device already").waitFor();
    await dialog(page).getByLabel("Unit", { exact: true }).fill(second);
    await dialog(page).getByLabel("Least protection").selectOption("crc");
    await dialog(page).getByLabel(/^Read-only/).check();
    await button(dialog(page), "Plan").click();
    await confirm(page, "Add");
    assert.deepEqual(await devices(), [[first, "encrypt", false], [second, "crc", true]]);
    await button(page, `Edit device ${second}`).click();
    assert.equal(await dialog(page).getByLabel("Unit", { exact: true }).isDisabled(), true);
    await dialog(page).getByLabel("Least protection").selectOption("hash");
    await dialog(page).getByLabel(/^Read-only/).uncheck();
    await button(dialog(page), "Plan").click();
    await confirm(page, "Change");
    assert.deepEqual(await devices(), [[first, "encrypt", false], [second, "hash", false]]);
    await button(page, `Remove device ${first}`).click();
    await confirm(page, "Remove");
    assert.deepEqual((await devices()).map(([id]) => id), [second]);
    await button(page, "Edit").click();
    await dialog(page).getByLabel("Profile").selectOption("wireless");
    await button(dialog(page), "Plan").click();
    await confirm(page, "Change");
    const kept = await group();
    assert.deepEqual([kept.password, kept.spec.profile], ["file", "wireless"]);
    await button(page, "Edit").click();
    await dialog(page).getByLabel("Password", { exact: true }).selectOption("open");
    await button(dialog(page), "Plan").click();
    await confirm(page, "Change");
    await page.getByText("none: everyone who reaches it").waitFor();
    assert.equal((await group()).password, "none");
    await button(page, "Remove").click();
    await confirm(page, "Remove");
    await page.waitForURL(/#\/hyperscsi$/);
    assert.equal(await group(), undefined);
    await close(page);
  });

  test("what a plan finds wrong is shown at the field of the wizard, before the next step", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "new-disk");
    await page.getByLabel("Id", { exact: true }).fill(LUN);
    const file = page.getByLabel("File", { exact: true }).last();
    await file.fill("/nowhere/e2e.img");
    await page.getByLabel("Size", { exact: true }).fill("16M");
    await button(page, "Next").click();
    await until(async () => (await file.getAttribute("aria-invalid")) === "true", "the field is marked");
    await page.locator(".field", { has: file }).getByText("its directory does not exist").waitFor();
    assert.equal(await file.evaluate((field) => field === document.activeElement), true);
    await page.getByText("Memory", { exact: true }).click();
    await button(page, "Next").click();
    await page.getByLabel("Portal").waitFor();
    await button(page, "Back").click();
    // A file that is there is not needed to see that its log cannot be made.
    await page.getByText("File", { exact: true }).first().click();
    await file.fill("/tmp/e2e-log-only.img");
    await page.getByLabel("Log device").fill("mem:1G");
    await page.getByText("file:PATH?size=SIZE or block:PATH").first().waitFor();
    assert.equal(await button(page, "Next").isDisabled(), true);
    await page.getByLabel("Log device").fill("file:/nowhere/e2e.log?size=64M");
    await page.getByLabel("Log for").selectOption("throughput");
    await button(page, "Next").click();
    await until(async () => (await page.getByLabel("Log device").getAttribute("aria-invalid")) === "true", "the log is marked");
    assert.deepEqual((await ask(page, "luns")).filter(({ spec }) => spec.id === LUN), []);
    await close(page);
  });

  test("the wizard offers what the machine has, and makes a removable, read-only disk", async () => {
    if (!world.empty) throw new Skip("files are made by the mock only");
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "new-disk");
    await page.getByLabel("Id", { exact: true }).fill("e2e-iso");
    const file = page.getByLabel("File", { exact: true }).last();
    const options = await file.evaluate((input) => [...input.list.options].map(({ value }) => value));
    assert.ok(options.includes("/srv/tarn/fast/e2e-iso.img"), options.join());
    await file.fill("srv/e2e.img");
    await page.getByText("a path that begins with /").first().waitFor();
    assert.equal(await button(page, "Next").isDisabled(), true);
    await file.fill("/srv/tarn/fast/e2e-iso.img");
    await page.getByLabel(/^Read-only/).check();
    await page.getByLabel(/^Removable/).check();
    await page.getByLabel("Log device").fill("file:/srv/log.img?size=4G");
    await page.getByLabel("Log for").selectOption("throughput");
    await button(page, "Next").click();
    await page.getByLabel("Name", { exact: true }).fill(TARGET);
    await page.getByLabel("Portal").fill("0.0.0.0:3460");
    await button(page, "Next").click();
    await page.getByText("All initiators that may log in").click();
    await button(page, "Next").click();
    await button(page, "Create disk").click();
    await page.getByText("as LUN 0").waitFor();
    assert.match(await page.getByLabel("commands for VMware ESXi", { exact: true }).textContent(), /sendtarget add --adapter=\$A/);
    const { spec } = (await ask(page, "luns")).find((lun) => lun.spec.id === "e2e-iso");
    assert.deepEqual([spec.store, spec.log, spec.sync_bias], ["file:/srv/tarn/fast/e2e-iso.img?size=10G&readonly&removable", "file:/srv/log.img?size=4G", "throughput"]);
    await removeAll(page);
    await close(page);
  });

  test("an initiator that was seen is put into a group without typing its name", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const [{ initiator }] = await ask(page, "sessions");
    await visit(page, "groups");
    await button(page, "Add group").click();
    const seen = page.getByLabel("Seen by Tarn", { exact: true });
    await until(() => seen.evaluate((input, name) => [...input.list.options].some(({ value }) => value === name), initiator), "it is offered");
    await seen.fill(initiator);
    await button(page, "Add: Seen by Tarn").click();
    assert.equal(await page.getByLabel("Initiators").inputValue(), initiator);
    await close(page);
  });

  test("events are filtered by the server and name what they are about", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "events");
    const asked = page.waitForRequest((request) => request.url().includes("/events?") && request.url().includes("severity=error"));
    await page.getByLabel("Severity").selectOption("error");
    await asked;
    await button(page, "Clear filters").click();
    await page.getByLabel("Kind").selectOption("session-began");
    const links = page.getByRole("table", { name: "Events" }).getByRole("link");
    await until(async () => (await links.count()) > 0, "a session event with links");
    const to = await links.evaluateAll((all) => all.map((each) => each.getAttribute("href")));
    assert.ok(to.some((each) => each.startsWith("#/targets/")), to.join());
    await close(page);
  });

  test("what is in use is not removed, and the page says by whom", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const used = (await ask(page, "targets")).flatMap(({ spec }) => spec.luns ?? []).find(({ groups }) => groups?.length)?.groups[0];
    assert.ok(used, "the server has a group that sees a unit");
    await visit(page, "groups");
    await button(page, `Remove ${used}`).click();
    await dialog(page).getByRole("alert").waitFor();
    assert.equal(await button(dialog(page), "Remove").isDisabled(), true);
    await close(page);
  });
}

function addConfigTests({ browser, world }) {
  const area = (page) => page.getByLabel("Document of the configuration");

  test("a document is planned, applied, compared and rolled back", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "config");
    const before = await area(page).inputValue();
    await area(page).fill(`${before}\n[[group]]\nid = "${GROUP}"\ninitiators = ["${INITIATOR}"]\n`);
    await button(page, "Plan").click();
    await page.getByRole("cell", { name: GROUP }).waitFor();
    await page.getByLabel("Comment").fill("a group for e2e");
    await button(page, "Apply").click();
    await until(async () => (await ask(page, "groups")).some(({ id }) => id === GROUP), "the group is there");
    await button(page, "History").click();
    await page.getByText("a group for e2e").waitFor();
    await page.getByRole("button", { name: /^Compare revision/ }).first().click();
    await dialog(page).getByText(`- id = "${GROUP}"`).waitFor();
    await button(dialog(page), "Roll back").click();
    await dialog(page).waitFor({ state: "detached" });
    assert.equal((await ask(page, "config")).text, before);
    await close(page);
  });

  test("a key that waits for a restart is shown until it is as it was", async () => {
    if (world.empty) throw new Skip("the mock has no keys that wait for a restart");
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "config");
    const before = await area(page).inputValue();
    const waiting = page.getByText("Takes effect when Tarn is restarted");
    const apply = async (text) => {
      await area(page).fill(text);
      await button(page, "Plan").click();
      await page.getByRole("cell", { name: "seccomp", exact: true }).waitFor();
      await button(page, "Apply").click();
      await until(async () => (await ask(page, "config")).text === text, "it is applied");
    };
    assert.equal(await waiting.count(), 0);
    const banner = page.getByText("A restart is pending:");
    await apply(`${before}\n[confine]\nseccomp = false\n`);
    await waiting.waitFor();
    await page.getByText("[confine] seccomp: true -> false").waitFor();
    await button(page, "History").click();
    await page.getByRole("listitem").filter({ hasText: "runs" }).getByText("partly pending until restart").waitFor();
    await visit(page, "luns");
    await banner.waitFor();
    await page.getByRole("link", { name: "Configuration", exact: true }).last().click();
    await area(page).waitFor();
    await page.getByText("partly pending until restart").waitFor();
    await apply(before);
    await waiting.waitFor({ state: "detached" });
    await visit(page, "luns");
    await banner.waitFor({ state: "detached" });
    await close(page);
  });

  test("a document with a mistake is refused with its place", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "config");
    await area(page).fill(`${await area(page).inputValue()}\n[[lun]\n`);
    await button(page, "Plan").click();
    await page.getByRole("alert").filter({ hasText: /tarn\.toml:\d+|:\d+/ }).waitFor();
    assert.equal(await button(page, "Apply").isDisabled(), true);
    await close(page);
  });

  test("of two who edit, the second is told and loses nothing", async () => {
    const [first, second] = [await open(browser, world.base), await open(browser, world.base)];
    for (const page of [first, second]) {
      await login(page, world.token);
      await visit(page, "config");
    }
    const before = await area(first).inputValue();
    const edit = async (page, comment) => {
      await area(page).fill(`${before}\n# ${comment}\n`);
      await button(page, "Plan").click();
      await page.getByText("Only the text differs, such as comments.").waitFor();
    };
    await edit(second, "second");
    await edit(first, "first");
    await button(first, "Apply").click();
    await until(async () => (await ask(first, "config")).text.includes("# first"), "the first is applied");
    await button(second, "Apply").click();
    await second.getByText("The configuration has changed meanwhile").first().waitFor();
    assert.match(await area(second).inputValue(), /# second/);
    await button(second, "Compare").click();
    await second.getByText("+ # second").waitFor();
    await button(second, "Discard my changes and reload").click();
    await until(async () => (await area(second).inputValue()).includes("# first"), "the newer document is shown");
    await area(second).fill(before);
    await button(second, "Plan").click();
    await button(second, "Apply").click();
    await until(async () => (await ask(second, "config")).text === before, "all is as before");
    await close(first);
    await close(second);
  });
}

function addFrameTests({ browser, world }) {
  test("a wrong token is refused in words", async () => {
    const page = await open(browser, world.base);
    await page.goto(world.base);
    await page.getByLabel("Token").fill("wrong");
    await button(page, "Log in").click();
    await page.getByRole("alert").waitFor();
    await close(page);
  });

  test("a viewer sees everything and is offered no change", async () => {
    const admin = await open(browser, world.base);
    await login(admin, world.token);
    await visit(admin, "tokens");
    await button(admin, "Create token").click();
    await admin.getByLabel("Name", { exact: true }).fill("e2e-viewer");
    await button(dialog(admin), "Create").click();
    const token = (await admin.getByLabel("token", { exact: true }).textContent()).trim();
    await button(admin, "Done").click();
    const page = await open(browser, world.base);
    await login(page, token);
    const lun = (await ask(page, "luns"))[0].spec.id;
    const target = (await ask(page, "targets"))[0].spec.name;
    for (const hash of ["", "luns", `luns/${encodeURIComponent(lun)}`, "targets", `targets/${encodeURIComponent(target)}`, "stores", "nbd", "quotas", "hyperscsi", "groups", "users", "sessions", "health", "config"]) {
      await visit(page, hash);
      const offered = page.locator("main").getByRole("button", { name: /^(Add|Edit|Change|Remove|Resize|Rename|End|Plan|Apply)\b/ });
      assert.equal(await offered.count(), 0, hash);
    }
    assert.equal(await page.getByRole("link", { name: "Tokens" }).count(), 0);
    await close(page);
    await button(admin, "Revoke e2e-viewer").click();
    await button(dialog(admin), "Revoke").click();
    await dialog(admin).waitFor({ state: "detached" });
    await close(admin);
  });

  test("a login that has ended leads to the login page, which says so", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await page.context().clearCookies();
    await page.evaluate(() => { location.hash = "#/luns"; });
    await page.getByText("Your login has ended").waitFor();
    await page.getByLabel("Token").fill(world.token);
    await button(page, "Log in").click();
    await page.getByRole("heading", { name: "LUNs", level: 1 }).waitFor();
    await close(page);
  });

  test("a session is ended after a question", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const sessions = await ask(page, "sessions");
    const { id } = sessions.at(-1);
    await visit(page, `sessions/${id}`);
    await button(page, "End session").click();
    await button(dialog(page), "Cancel").click();
    // Its button has the name of the page's.
    await dialog(page).waitFor({ state: "detached" });
    assert.equal((await ask(page, "sessions")).some((each) => each.id === id), true);
    await button(page, "End session").click();
    await button(dialog(page), "End session").click();
    await page.waitForURL(/#\/sessions$/);
    await until(async () => !(await ask(page, "sessions")).some((each) => each.id === id), "it has ended");
    await close(page);
  });

  test("a lost connection is told, and found again", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await page.route("**/api/v1/live*", (route) => route.abort());
    await page.context().setOffline(true);
    await visit(page, "luns").catch(() => undefined);
    await page.getByText("The connection is lost.").waitFor();
    await page.context().setOffline(false);
    // A stream that was there before may have outlived the loss; a new page has none. As long as it is refused the
    // notice stays, so that there is something to press.
    await page.reload();
    await loaded(page);
    await page.getByText("The connection is lost.").waitFor();
    await Promise.all([page.waitForRequest("**/api/v1/live*"), button(page, "Try now").click()]);
    await page.getByText("The connection is lost.").waitFor();
    await page.unroute("**/api/v1/live*");
    await page.getByText("The connection is lost.").waitFor({ state: "detached" });
    await close(page);
  });

  test("the choice of colours stays over a reload", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.getByRole("button", { name: "Colours: as the system" }).click();
    await page.getByRole("button", { name: "Colours: light" }).click();
    const dark = await background();
    assert.notEqual(dark, light);
    await page.reload();
    await loaded(page);
    assert.equal(await background(), dark);
    await close(page);
  });

  test("a file that is no report is refused in words", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    await visit(page, "bench");
    await page.getByLabel("Report files").setInputFiles([{ name: "x.json", mimeType: "application/json", buffer: Buffer.from('{"format":"other"}') }]);
    await page.getByText("x.json: this is no report of tarn bench").waitFor();
    await close(page);
  });
}

export function addTaskTests(given) {
  addFrameTests(given);
  addWizardTests(given);
  addChangeTests(given);
  addConfigTests(given);
}
