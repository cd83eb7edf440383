/** The life of a slow command: what it waited for, as a bar over its time, and in words. */
import type { SlowCommand } from "../api/types";
import { latency } from "../lib/units";

/** Whose time it was: the network's, other commands', the store's or the core's own. */
const WHOSE: Record<string, 1 | 2 | 3 | 4> = {
  arrival: 4, data: 4, order: 3, fence: 3, memory: 3, owner: 3, store: 2,
};
const HEIGHT = 10;

export function Life({ took_us, phases, core_us }: SlowCommand) {
  const share = (us: number) => `${(100 * us) / Math.max(1, took_us)}%`;
  const parts = [...phases, ...(core_us > 0 ? [{ phase: "core", us: core_us }] : [])];
  return (
    <span class="life">
      <svg height={HEIGHT} aria-hidden="true">
        <rect width="100%" height={HEIGHT} class="life-core" />
        {phases.map(({ phase, from_us, us }) => (
          <rect key={phase} x={share(from_us)} width={share(us)} height={HEIGHT} class={`chart-${WHOSE[phase] ?? 1}`} />
        ))}
      </svg>
      <span class="marks">
        {parts.map(({ phase, us }) => <span key={phase} class={`chart-${WHOSE[phase] ?? 1}`}>{phase} {latency(us)}</span>)}
      </span>
    </span>
  );
}
