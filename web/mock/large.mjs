// A large server: 300 LUNs, 100 targets one of which exports all of them, groups, users, and many sessions.
export const LARGE_SESSIONS = 1000;
const LUNS = 300;
const TARGETS = 100;
const GROUPS = 120;
const USERS = 60;

const list = (count, make) => Array.from({ length: count }, (_, at) => make(at)).join("\n");

/** The document. */
export function large() {
  const views = Array.from({ length: LUNS }, (_, at) => `{ lun = ${at}, id = "disk${at}", groups = ["group${at % GROUPS}"] }`);
  const own = (at) => [0, 1, 2].map((lun) => `{ lun = ${lun}, id = "disk${(at * 3 + lun) % LUNS}" }`).join(", ");
  return [
    list(LUNS, (at) => `[[lun]]\nid = "disk${at}"\nstore = "file:/srv/tarn/pool${at % 9}/disk${at}.img?size=${10 + at}G"\n`),
    list(USERS, (at) => `[[user]]\nname = "user${at}"\nsecret_file = "user${at}.secret"\n`),
    list(GROUPS, (at) => `[[group]]\nid = "group${at}"\ninitiators = ["iqn.1993-08.org.debian:01:host${at}", "iqn.1993-08.org.debian:01:host${at + 200}", "198.18.${at}.0/24", "user:user${at % USERS}"]\n`),
    list(TARGETS, (at) => `[[target]]\nname = "iqn.2026-11.example.tarn:target${at}"\nportals = ["192.0.2.1:${3260 + at}"]\nauth = [${at % 2 ? "" : `"user${at % USERS}"`}]\nluns = [${at === 0 ? views.join(", ") : own(at)}]\n`),
  ].join("\n");
}
