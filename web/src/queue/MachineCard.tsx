import type { ReactNode } from "react";
import type { Json, Machine } from "../api";
import { bytes, mib, number, plural } from "../format";

type Bar = { name: string; used: number; all: number; text: string };

const amount = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const size = (value: number | Json[] | undefined): number | null =>
  Array.isArray(value) ? value.length : amount(value);

/** The resources of the machine, and how much of them runs use. */
export function barsOf({ cpus, memory_mib: memory, gpus, free, disk }: Machine): Bar[] {
  const bars: Bar[] = [];
  const add = (
    name: string,
    all: number | null,
    left: number | null,
    format: (amount: number) => string,
    unit = format,
  ): void => {
    if (all === null || left === null || all <= 0) return;
    const used = Math.min(all, Math.max(0, all - left));
    bars.push({ name, used, all, text: `${format(Math.max(0, left))} of ${unit(all)} free` });
  };
  add(
    "CPU",
    amount(cpus),
    amount(free.cpu ?? free.cpus),
    (cores) => number(cores, 3),
    (cores) => plural(Math.round(cores), "core"),
  );
  add("Memory", amount(memory), amount(free.memory_mib), mib);
  if (gpus.length) add("GPU", gpus.length, size(free.gpus), (count) => number(count));
  const scale = disk?.total_bytes === undefined ? 1024 * 1024 : 1;
  const total = amount(disk?.total_bytes ?? disk?.total_mib);
  const left = amount(disk?.free_bytes ?? disk?.free_mib);
  add("Disk", total === null ? null : total * scale, left === null ? null : left * scale, bytes);
  return bars;
}

/** Only a full disk is a problem: runs are meant to use all cores. */
const tone = (name: string, share: number): string =>
  name !== "Disk" ? "" : share > 0.95 ? " is-bad" : share > 0.85 ? " is-warn" : "";

export function MachineCard({ machine }: { machine: Machine }): ReactNode {
  return (
    <section className="card machine" aria-label="Machine">
      <div className="row machine-head">
        <h2 className="cut">{machine.host}</h2>
        <span className="faint">Phalanx {machine.version}</span>
        {machine.home && <span className="faint mono cut">{machine.home}</span>}
      </div>
      <div className="machine-bars">
        {barsOf(machine).map(({ name, used, all, text }) => (
          <div key={name}>
            <div className="row">
              <b className="grow">{name}</b>
              <span className="soft number">{text}</span>
            </div>
            <div
              className={`meter${tone(name, used / all)}`}
              role="meter"
              aria-label={`${name} in use`}
              aria-valuemin={0}
              aria-valuemax={100}
              aria-valuenow={Math.round((used / all) * 100)}
            >
              <i style={{ width: `${(used / all) * 100}%` }} />
            </div>
          </div>
        ))}
      </div>
    </section>
  );
}
