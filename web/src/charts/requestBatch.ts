/** Requests for single things that go out together: whatever is asked for in one tick is one request. */

type Waiting<Value> = { resolve: (value: Value) => void; reject: (fault: unknown) => void };

/** Asks for keys in batches. `ask` answers those it knows; a key without an answer is answered with undefined. */
export class RequestBatch<Value> {
  private waiting = new Map<string, Waiting<Value | undefined>[]>();
  private isDue = false;

  constructor(
    private readonly ask: (keys: string[]) => Promise<Map<string, Value>>,
    private readonly most = 50,
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
    for (let start = 0; start < all.length; start += this.most) {
      const some = all.slice(start, start + this.most);
      this.ask(some.map(([key]) => key)).then(
        (found) => {
          for (const [key, waiting] of some) for (const one of waiting) one.resolve(found.get(key));
        },
        (fault) => {
          for (const [, waiting] of some) for (const one of waiting) one.reject(fault);
        },
      );
    }
  }
}
