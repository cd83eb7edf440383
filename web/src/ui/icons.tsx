/** Icons of the menu: lines on a field of 24 by 24. */
const PATHS: Record<string, string> = {
  "": "M3 11 12 3l9 8M5 10v10h5v-6h4v6h5V10",
  luns: "M4 6c0-2 16-2 16 0v12c0 2-16 2-16 0zM4 6c0 2 16 2 16 0M4 12c0 2 16 2 16 0",
  targets: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 1v4M12 19v4M1 12h4M19 12h4",
  "new-disk": "M12 5v14M5 12h14",
  stores: "M3 7h18v4H3zM3 13h18v4H3zM7 9h.01M7 15h.01",
  nbd: "M4 5h16v6H4zM12 11v5M5 19h14M12 16l-4 3M12 16l4 3",
  hyperscsi: "M13 2 5 13h6l-1 9 9-12h-7z",
  quotas: "M4 18a8 8 0 1 1 16 0M12 18l4-6",
  groups: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2 20c0-4 3-6 6-6s6 2 6 6M16 11a3 3 0 1 0-1-5.800M17 14c3 0 5 2 5 6",
  users: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-5 4-7 8-7s8 2 8 7",
  access: "M2 12c3-6 17-6 20 0-3 6-17 6-20 0zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  sessions: "M3 8h14l-4-4M21 16H7l4 4",
  events: "M5 4h14v16H5zM9 9h6M9 13h6M9 17h3",
  health: "M3 12h4l3-7 4 14 3-7h4",
  config: "M4 6h10M18 6h2M4 12h2M10 12h10M4 18h10M18 18h2M16 4v4M8 10v4M16 16v4",
  bench: "M5 20V10M12 20V4M19 20v-7",
  tokens: "M8 15a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM12 10h10v4M18 10v3",
  colours: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  logout: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
};

export function Icon({ name }: { name: string }) {
  return <svg class="icon" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true"><path d={PATHS[name] ?? ""} /></svg>;
}
