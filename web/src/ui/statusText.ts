/** `upstream_failed` as people say it. */
export const words = (name: string): string => name.replaceAll("_", " ");
