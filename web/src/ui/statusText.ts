/** `upstream failed` for `upstream_failed`. */
export const statusText = (name: string): string => name.replaceAll("_", " ");
