/** The end of the wizard: what to type on the machines of the initiators. */
import { api } from "../api/client";
import type { Target } from "../api/types";
import { recipes, splitPortal } from "../lib/commands";
import { useLoad } from "../lib/load";
import { nameOf } from "../lib/wish";
import type { Wish } from "../lib/wish";
import { href } from "../router";
import { Card, Copyable, Notice, Shown } from "../ui/basics";

/** Addresses that stand for all of the machine: initiators need a real one. */
const ANY = new Set(["0.0.0.0", "[::]"]);

const ONLY_HERE = /^(127\.|\[::1\]|localhost)/;

/** Where an initiator finds a target: what discovery tells, or this machine as the browser knows it. */
function portalsOf(target: Target | undefined): string[] {
  const portals = target?.spec.portals ?? [{ bind: "127.0.0.1" }];
  const all = portals.map(({ advertise, bind }, at) => {
    if (advertise) return advertise;
    const [host, port] = splitPortal(target?.bound[at] ?? bind);
    return `${ANY.has(host) ? location.hostname : host}:${port}`;
  });
  return [...new Set(all)];
}

/** The user that was chosen here; a target may ask for several. */
function userOf({ proof, user, newUser }: Wish, target: Target | undefined): string | undefined {
  const users = target?.spec.auth ?? [];
  const chosen = proof === "new-user" ? newUser : proof === "user" ? user : "";
  return users.find((name) => name === chosen) ?? users[0];
}

export function Done({ wish }: { wish: Wish }) {
  const name = nameOf(wish);
  const targets = useLoad(api.targets, name);
  const users = useLoad(api.users);
  const effective = useLoad(api.effective);
  return (
    <Shown from={targets}>
      {(value) => {
        const target = value.find(({ spec }) => spec.name.toLowerCase() === name.toLowerCase());
        const lun = target?.spec.luns?.find(({ id }) => id === wish.id)?.lun ?? 0;
        const user = userOf(wish, target);
        const portals = portalsOf(target);
        const way = {
          target: name, portals, lun, user,
          mutual: users.value?.find((one) => one.name === user)?.mutual?.name,
          discoverer: /^discovery_auth = \["([^"\\]+)"/m.exec(effective.value?.text ?? "")?.[1],
        };
        return (
          <>
            <Notice tone="good">
              Disk <a href={href("luns", wish.id)}>{wish.id}</a> is there, and target <b class="name">{name}</b> shows it as LUN {lun}.
            </Notice>
            <Card title="On the machine of the initiator">
              {way.discoverer && (
                <p class="hint">
                  Discovery needs CHAP as user {way.discoverer}
                  {way.discoverer === way.user ? ", with the same secret" : "; SECRET_OF_DISCOVERY stands for its secret"}. Where the target is named, discovery is left out.
                </p>
              )}
              {portals.every((portal) => ONLY_HERE.test(portal)) && <Notice tone="warn">The portal {portals.join(", ")} is reached from this machine only. Give the target another portal for other hosts.</Notice>}
              {portals.length > 1 && <p class="hint">The target has these portals: {portals.join(", ")}. Each is a path to the disk; use multipath on the initiator for more than one.</p>}
              {way.user && <p class="hint">SECRET stands for the secret of user {way.user}{way.mutual && ", SECRET_OF_TARGET for that of the target"}.</p>}
              {recipes(way).map((recipe) => (
                <section key={recipe.title} class="recipe">
                  <h3>{recipe.title} <span class="hint">{recipe.note}</span></h3>
                  <Copyable text={recipe.text} label={`commands for ${recipe.title}`} />
                </section>
              ))}
            </Card>
          </>
        );
      }}
    </Shown>
  );
}
