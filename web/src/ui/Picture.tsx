import { type ReactNode, useState } from "react";
import { Icon } from "./icons";

type Props = { src: string; alt: string; className?: string; title?: string | undefined };

/** An image that says so if it cannot be shown: it is missing, damaged or not an image. */
export function Picture({ src, alt, className, title }: Props): ReactNode {
  const [broken, setBroken] = useState("");
  if (broken === src) {
    return (
      <span className="picture-broken" role="img" aria-label={`${alt}: cannot be shown`}>
        <Icon name="warning" size={14} /> Cannot show this image: {alt || src}
      </span>
    );
  }
  return <img src={src} alt={alt} className={className} title={title} loading="lazy" onError={() => setBroken(src)} />;
}
