import { describe, expect, it } from "vitest";
import { keyName } from "./shortcuts";

const pressed = (key: string, held: Partial<KeyboardEvent> = {}): string =>
  keyName({ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...held });

describe("a pressed key", () => {
  it("has the name shown in the help", () => {
    expect([pressed("j"), pressed("?", { shiftKey: true }), pressed("X", { shiftKey: true }), pressed(" ")]).toEqual([
      "j",
      "?",
      "shift+x",
      "Space",
    ]);
  });

  it("is the same with Ctrl and with Command", () => {
    expect([pressed("k", { ctrlKey: true }), pressed("k", { metaKey: true })]).toEqual(["mod+k", "mod+k"]);
  });

  it("keeps Shift for keys that are not characters", () => {
    expect(pressed("Enter", { shiftKey: true })).toBe("shift+Enter");
  });
});
