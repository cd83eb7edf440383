// Makes a disk with the wizard and leaves it there, for who then tries it with an initiator. Prints its target.
//
//     node test/first-disk.mjs --url URL --token TOKEN --portal ADDRESS:PORT --initiator NAME
import { parseArgs } from "node:util";
import { close, launch, login, open } from "./browser.mjs";
import { wizardByKeyboard } from "./tasks.mjs";

const text = { type: "string" };
const { values } = parseArgs({ options: { url: text, token: text, portal: text, initiator: text } });
const browser = await launch();
try {
  const page = await open(browser, values.url);
  await login(page, values.token);
  await page.locator("main").getByRole("link", { name: "Add disk" }).click();
  await wizardByKeyboard(page, values);
  await page.getByText("as LUN 0").waitFor();
  const targets = await page.evaluate(async () => (await fetch("/api/v1/targets")).json());
  console.log(targets.map(({ spec }) => spec.name).join("\n"));
  await close(page);
} finally {
  await browser.close();
}
