/** Combines the requests for single keys within one tick into one request. */

type PendingGet<Value> = { resolve: (value: Value) => void; reject: (error: unknown) => void };

/** Fetches keys in batches. A key that `fetchAll` does not return resolves to undefined. */
export class RequestBatch<Value> {
  private waiting = new Map<string, PendingGet<Value | undefined>[]>();
  private isDue = false;

  constructor(
    private readonly fetchAll: (keys: string[]) => Promise<Map<string, Value>>,
    private readonly maxKeys = 50,
    private readonly later: (go: () => void) => void = (go) => void setTimeout(go, 0),
  ) {}

  get(key: string): Promise<Value | undefined> {
    return new Promise((resolve, reject) => {
      const others = this.waiting.get(key);
      if (others) others.push({ resolve, reject });
      else this.waiting.set(key, [{ resolve, reject }]);
      if (this.isDue) return;
      this.isDue = true;
      this.later(() => this.send());
    });
  }

  private send(): void {
    const all = [...this.waiting];
    this.waiting = new Map();
    this.isDue = false;
    for (let start = 0; start < all.length; start += this.maxKeys) {
      const some = all.slice(start, start + this.maxKeys);
      this.fetchAll(some.map(([key]) => key)).then(
        (found) => {
          for (const [key, waiting] of some) for (const one of waiting) one.resolve(found.get(key));
        },
        (error) => {
          for (const [, waiting] of some) for (const one of waiting) one.reject(error);
        },
      );
    }
  }
}
