/** Initiators that Tarn has met: those that are logged in, and those of events, also of logins that failed. */
import { api } from "../api/client";
import { events } from "../api/live";

/** More would be no help. */
const SEEN_MAX = 500;

export async function seenInitiators(): Promise<string[]> {
  const sessions = await api.sessions();
  const all = [...sessions.map(({ initiator }) => initiator), ...events.get().map(({ initiator }) => initiator ?? "")];
  return [...new Set(all)].filter((name) => /^(iqn|eui|naa)\./i.test(name)).sort().slice(0, SEEN_MAX);
}
