/** The frame of all pages: who is logged in, where one can go, whether the server is there. */
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, may, reachable, whoami } from "./api/client";
import { flowing, forgetLive, openLive } from "./api/live";
import type { Role, Status } from "./api/types";
import { useLoad } from "./lib/load";
import { useStore } from "./lib/store";
import { plural } from "./lib/units";
import { AccessPage } from "./pages/access";
import { BenchPage } from "./pages/bench";
import { ConfigPage } from "./pages/config";
import { EventsPage } from "./pages/events";
import { GroupPage, GroupsPage } from "./pages/groups";
import { HealthPage } from "./pages/health";
import { HyperscsiGroupPage, HyperscsiPage } from "./pages/hyperscsi";
import { LoginPage } from "./pages/login";
import { LunPage } from "./pages/lun";
import { LunsPage } from "./pages/luns";
import { OverviewPage } from "./pages/overview";
import { NbdPage, QuotasPage, StoresPage } from "./pages/sections";
import { SessionPage, SessionsPage } from "./pages/sessions";
import { TargetPage } from "./pages/target";
import { TargetsPage } from "./pages/targets";
import { TokensPage } from "./pages/tokens";
import { UsersPage } from "./pages/users";
import { WizardPage } from "./pages/wizard";
import { href, route } from "./router";
import { nextTheme, theme } from "./theme";
import { Empty, Page } from "./ui/basics";
import { Icon } from "./ui/icons";
import { Toast } from "./ui/toast";

export interface PageProps {
  /** The rest of the address. */
  parts: string[];
}

interface Place {
  page: string;
  title: string;
  role: Role;
  view: ComponentType<PageProps>;
  /** The page of one of them, if the address goes on. */
  one?: ComponentType<PageProps>;
  /** How many there are, beside the title. */
  count?: (status: Status) => number;
}

const serious = ({ findings }: Status) => findings.filter(({ severity }) => severity !== "info").length;

const MENU: { title: string; places: Place[] }[] = [
  { title: "", places: [
    { page: "", title: "Overview", role: "viewer", view: OverviewPage },
    { page: "health", title: "Health", role: "viewer", view: HealthPage, count: serious },
  ] },
  { title: "Storage", places: [
    { page: "luns", title: "LUNs", role: "viewer", view: LunsPage, one: LunPage, count: ({ luns }) => luns },
    { page: "targets", title: "Targets", role: "viewer", view: TargetsPage, one: TargetPage, count: ({ targets }) => targets },
    { page: "new-disk", title: "Add disk", role: "admin", view: WizardPage },
    { page: "stores", title: "Named stores", role: "viewer", view: StoresPage },
    { page: "nbd", title: "NBD servers", role: "viewer", view: NbdPage },
    { page: "hyperscsi", title: "HyperSCSI", role: "viewer", view: HyperscsiPage, one: HyperscsiGroupPage },
    { page: "quotas", title: "Quotas", role: "viewer", view: QuotasPage },
  ] },
  { title: "Access", places: [
    { page: "groups", title: "Groups", role: "viewer", view: GroupsPage, one: GroupPage },
    { page: "users", title: "Users", role: "viewer", view: UsersPage },
    { page: "access", title: "Who sees what", role: "viewer", view: AccessPage },
  ] },
  { title: "Activity", places: [
    { page: "sessions", title: "Sessions", role: "viewer", view: SessionsPage, one: SessionPage, count: ({ sessions }) => sessions },
    { page: "events", title: "Events", role: "viewer", view: EventsPage },
  ] },
  { title: "Administration", places: [
    { page: "config", title: "Configuration", role: "viewer", view: ConfigPage },
    { page: "bench", title: "Benchmarks", role: "viewer", view: BenchPage },
    { page: "tokens", title: "Tokens", role: "admin", view: TokensPage },
  ] },
];

/** Pages that had another name, which bookmarks may have. */
const MOVED: Record<string, string> = { doctor: "health" };

const PLACES = MENU.flatMap(({ places }) => places);

export function App() {
  const who = useStore(whoami);
  useEffect(() => {
    // A 401 sets `whoami` itself; any other failure shows the banner and is tried again with the stream.
    api.whoami().then((answer) => whoami.set(answer), () => whoami.get() === undefined && whoami.set(null));
  }, []);
  const isIn = Boolean(who);
  useEffect(() => {
    if (!isIn) return undefined;
    openLive();
    return forgetLive;
  }, [isIn]);
  if (who === undefined) return <div class="loading" role="status"><span class="visually-hidden">Loading</span></div>;
  return who === null ? <LoginPage /> : <Frame />;
}

function Frame() {
  const at = useStore(route);
  const main = useRef<HTMLElement>(null);
  const [isOpen, setOpen] = useState(false);
  const place = PLACES.find(({ page, role }) => page === (MOVED[at.page] ?? at.page) && may(role));
  const title = place?.title ?? "Not found";
  const address = JSON.stringify(at);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${title} · Tarn`;
    setOpen(false);
    scrollTo(0, 0);
    // Whoever navigates by keyboard or hears the page goes on at its headline.
    if (!isFirst.current) main.current?.querySelector("h1")?.focus();
    isFirst.current = false;
  }, [address]);
  const status = useLoad(api.status);
  const View = place && (at.parts.length > 0 ? place.one ?? place.view : place.view);
  const skip = (event: Event) => {
    event.preventDefault();
    main.current?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the page</a>
      <div class="frame">
        <Sidebar page={at.page} status={status.value} isOpen={isOpen} toggle={() => setOpen(!isOpen)} />
        <div class="content">
          <Lost />
          {at.page !== "config" && <Waiting keys={status.value?.pending ?? []} />}
          <main ref={main} id="main" tabIndex={-1}>
            {View ? <View key={address} parts={at.parts} /> : (
              <Page title="Not found">
                <Empty title="The page does not exist, or your role may not see it."><a href={href("")}>Overview</a></Empty>
              </Page>
            )}
          </main>
        </div>
      </div>
      <Toast />
    </>
  );
}

const THEMES = { system: "as the system", light: "light", dark: "dark" } as const;

function Sidebar({ page, status, isOpen, toggle }: { page: string; status: Status | undefined; isOpen: boolean; toggle: () => void }) {
  const shade = useStore(theme);
  const role = useStore(whoami)?.role;
  const logout = () => api.logout().catch(() => undefined).finally(() => whoami.set(null));
  return (
    <header class={isOpen ? "sidebar open" : "sidebar"}>
      <div class="sidebar-inner">
        <div class="brand">
          <a href={href("")} class="logo"><img src="./tarn.svg" alt="" width="28" height="28" /><span class="menu-word">Tarn</span></a>
          <button type="button" class="button menu" aria-expanded={isOpen} aria-controls="menu" onClick={toggle}>Menu</button>
        </div>
        <nav id="menu" aria-label="Pages">
          {MENU.map(({ title, places }) => (
            <div key={title} class="menu-group">
              {title && <h2 class="menu-title">{title}</h2>}
              <ul>
                {places.filter((place) => may(place.role)).map((place) => (
                  <li key={place.page}>
                    <a href={href(place.page)} title={place.title} aria-current={place.page === page ? "page" : undefined}>
                      <Icon name={place.page} /><span class="menu-word">{place.title}</span><Count place={place} status={status} />
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          ))}
          <div class="menu-foot">
            <button type="button" class="button plain" onClick={nextTheme} aria-label={`Colours: ${THEMES[shade]}`} title="Colours"><Icon name="colours" /><span class="menu-word">Colours: {THEMES[shade]}</span></button>
            <button type="button" class="button plain" onClick={logout} aria-label={`Log out (${role})`} title="Log out"><Icon name="logout" /><span class="menu-word">Log out ({role})</span></button>
          </div>
        </nav>
      </div>
    </header>
  );
}

function Count({ place, status }: { place: Place; status: Status | undefined }) {
  const number = status && place.count?.(status);
  if (!number) return null;
  return <span class={place.page === "health" ? "count warn" : "count"}>{number.toLocaleString("en")}</span>;
}

/** What was changed and takes effect with the next start. The page of the configuration names the keys. */
function Waiting({ keys }: { keys: string[] }) {
  if (keys.length === 0) return null;
  return (
    <div class="waiting" role="status">
      <span><b>A restart is pending:</b> {plural(keys.length, "key")} of the configuration {keys.length === 1 ? "takes" : "take"} effect when Tarn starts again.</span>
      <a href={href("config")}>Configuration</a>
    </div>
  );
}

function Lost() {
  const isThere = useStore(reachable);
  const isFlowing = useStore(flowing);
  if (isThere && isFlowing) return null;
  return (
    <div class="lost" role="alert">
      <span><b>The connection is lost.</b> The page shows old data; Tarn is contacted again every few seconds.</span>
      <button type="button" class="button" onClick={openLive}>Try now</button>
    </div>
  );
}
