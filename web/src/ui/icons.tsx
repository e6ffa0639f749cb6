// Small line drawings, 16 by 16, in the colour of the text.

import type { ReactNode } from "react";

const PATHS = {
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zm3.6-1.4L14 14",
  close: "m4 4 8 8m0-8-8 8",
  check: "m3 8.5 3.2 3.2L13 4.5",
  down: "m4 6 4 4 4-4",
  right: "m6 4 4 4-4 4",
  left: "m10 4-4 4 4 4",
  up: "m4 10 4-4 4 4",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9 13 13M3 13l1.1-1.1M11.9 4.1 13 3",
  moon: "M13.5 9.8A6 6 0 0 1 6.2 2.5a6 6 0 1 0 7.3 7.3z",
  screen: "M2 3h12v8H2zM6 14h4M8 11v3",
  copy: "M6 6h8v8H6zM3 10H2V2h8v1",
  stop: "M4 4h8v8H4z",
  restart: "M13.5 8A5.5 5.5 0 1 1 11 3.4M11 1v2.8H8.2",
  trash: "M2.5 4h11M6 4V2h4v2M4 4l.7 10h6.6L12 4M6.6 7v4.5M9.4 7v4.5",
  compare: "M3 13V3m5 10V6m5 7V1",
  tag: "M2 2h5.5L14 8.5 8.5 14 2 7.5zM5 5v.1",
  columns: "M2 3h12v10H2zM6.5 3v10M10.5 3v10",
  help: "M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM6.2 6.2a1.8 1.8 0 1 1 2.6 1.6c-.5.3-.8.6-.8 1.2M8 11.2v.1",
  warning: "M8 2 15 14H1zM8 6.5v3.5M8 12v.1",
  link: "M6.5 9.5l3-3M7 4.5 8.5 3a3 3 0 0 1 4.5 4.5L11.5 9M9 11.5 7.5 13A3 3 0 0 1 3 8.5L4.5 7",
  menu: "M2 4h12M2 8h12M2 12h12",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  download: "M8 2v8m-3.5-3L8 10.5 11.5 7M2.5 13.5h11",
  chart: "M2 2v12h12M4.5 10.5l3-3.5 2.5 2 3.5-5",
  plus: "M8 3v10M3 8h10",
  file: "M4 1.5h5.5L13 5v9.5H4zM9.5 1.5V5H13",
  folder: "M1.5 3h5l1.5 2h6.5v8h-13z",
  star: "m8 1.8 1.9 4 4.4.6-3.2 3 .8 4.4L8 11.7l-3.9 2.1.8-4.4-3.2-3 4.4-.6z",
  archive: "M1.5 3h13v3h-13zM2.5 6v7.5h11V6M6 9h4",
  bookmark: "M4 1.5h8v13l-4-3-4 3z",
  rows: "M2 3.5h12M5 8h9M5 12.5h9M2 8h.1M2 12.5h.1",
  sort: "M5 2.5v11m-3-3 3 3 3-3M11 13.5v-11m-3 3 3-3 3 3",
  user: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14a5.5 5.5 0 0 1 11 0",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): ReactNode {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "more" ? 2 : 1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
