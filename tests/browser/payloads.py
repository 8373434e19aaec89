"""Texts that would run in a page that interprets them as markup, a link, a template or code.

Each sets `window.pwned` if it runs. None contains an empty line, so each is shown as one paragraph.
"""

RUN = "window.pwned=1"
CODED = RUN.replace("w", "&#119;").replace("=", "&equals;")

SCRIPTS = (
    f"<script>{RUN}</script>",
    f"<SCRIPT>{RUN}</SCRIPT>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<script\t>{RUN}</script\t>",
    f"<script/x>{RUN}</script/x>",
    f"<script src=data:text/javascript,{RUN}></script>",
    f"<script type=module>{RUN}</script>",
    f"<script>/*</p>*/{RUN}</script>",
    f"</p></article><script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"\"'><script>{RUN}</script>",
    f"--><script>{RUN}</script>",
    f"]]><script>{RUN}</script>",
    f"</title></textarea></style><script>{RUN}</script>",
    f"<!--><script>{RUN}</script>-->",
    f"<template shadowrootmode=open><script>{RUN}</script></template>",
    f"<noscript><p title='</noscript><script>{RUN}</script>'>",
)

HANDLERS = (
    f"<img src=x onerror={RUN}>",
    f"<img src=x onerror='{RUN}'",
    f"<IMG SRC=x OnErRoR={RUN}>",
    f"<img/src=x/onerror={RUN}>",
    f'<img src="x`" onerror="{RUN}" alt="`">',
    f"<img srcset=x onerror={CODED}>",
    f"<img src=data:image/gif;base64,R0lGODlhAQABAAAAACw= onload={RUN}>",
    f"<image src=x onerror={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}><option>x</select>",
    f"<textarea autofocus onfocus={RUN}>x</textarea>",
    f"<div tabindex=0 autofocus onfocus={RUN}>x</div>",
    f"<div contenteditable autofocus onfocusin={RUN}>x</div>",
    f"<details open ontoggle={RUN}><summary>x</summary></details>",
    f"<video src=x onerror={RUN}></video>",
    f"<video><source onerror={RUN}></video>",
    f"<audio src=x onerror={RUN}></audio>",
    f"<marquee onstart={RUN}>x</marquee>",
    f"<body onload={RUN}>",
    f"<body onpageshow={RUN}>",
    f"<object data=x onerror={RUN}></object>",
    f"<link rel=stylesheet href=x onerror={RUN}>",
    f"<style onload={RUN}></style>",
    f"<p style='animation: spin 1ms' onanimationstart={RUN}>x</p>",
    f"<p style='transition: color 1ms' ontransitionend={RUN}>x</p>",
    f"<button popovertarget=p>x</button><div id=p popover onbeforetoggle={RUN}>x</div>",
    f"<dialog open onclose={RUN}><form method=dialog><button autofocus>x</button></form></dialog>",
    f"<p onmouseover={RUN} onpointerenter={RUN}>x</p>",
    f"<x onclick={RUN} onwheel={RUN} onscroll={RUN} tabindex=1>x</x>",
)

LINKS = (
    f"<a href='javascript:{RUN}'>click</a>",
    f"<a href='JaVaScRiPt:{RUN}'>click</a>",
    f"<a href='java&#9;script:{RUN}'>click</a>",
    f"<a href='\x01javascript:{RUN}'>click</a>",
    f"<a href='javascript&colon;{CODED}'>click</a>",
    f"<a href='data:text/html,<script>opener.{RUN}</script>' target=_blank>click</a>",
    f"<area href='javascript:{RUN}' shape=default>",
    f"<form action='javascript:{RUN}'><button autofocus>x</button></form>",
    f"<button formaction='javascript:{RUN}' form=f>x</button><form id=f></form>",
    f"<base href='javascript:{RUN}//'><a href=#>click</a>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    f"<iframe src='javascript:parent.{RUN}'></iframe>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<embed src='javascript:{RUN}'>",
    f"<object data='javascript:{RUN}'></object>",
    f"<portal src='javascript:{RUN}'></portal>",
    f"javascript:{RUN}",
    f"[click](javascript:{RUN})",
    f"[click](<javascript:{RUN}>)",
    f'![x](x"onerror="{RUN})',
    f"<javascript:{RUN}>",
    f"[click][1] [1]: javascript:{RUN}",
    f'https://shop.example/?q="onmouseover="{RUN}',
)

FOREIGN_CONTENT = (
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><script href=data:text/javascript,{RUN} /></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{RUN}'><text y=20>click</text></a></svg>",
    f"<svg><foreignObject><img src=x onerror={RUN}></foreignObject></svg>",
    f"<svg><style><img src=x onerror={RUN}></style></svg>",
    f"<math href='javascript:{RUN}'>click</math>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={RUN}>",
    f"<svg></p><style><a title='</style><img src onerror={RUN}>'>",
)

TEMPLATES = (
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    f"#{{{RUN}}}",
    f"<%= {RUN} %>",
    f"{{% {RUN} %}}",
    f"`${{{RUN}}}`",
    f"';{RUN};'",
    f'");{RUN};//',
    "__proto__",
    f"<replyline-chat url='javascript:{RUN}'></replyline-chat>",
)

ENTITIES_AND_CHARACTERS = (
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&amp;lt;script&amp;gt;{RUN}",
    f"&#60;img src=x onerror={RUN}&#62;",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"%3Cscript%3E{RUN}%3C/script%3E",
    f"+ADw-script+AD4-{RUN}+ADw-/script+AD4-",
    f"\uff1cscript\uff1e{RUN}\uff1c/script\uff1e",
    f"\u202e<img src=x onerror={RUN}>\u202c",
    f"\u2066\u200f<b>{RUN}</b>\u2069",
    f"<img\x0csrc=x\x0conerror={RUN}>",
    f"\ufffd\uffff<img src=x onerror={RUN}>",
    f"<\u0000script>{RUN}</script>",
    f"{'A' * 20_000}<img src=x onerror={RUN}>",
    f"{'<b>' * 2_000}<img src=x onerror={RUN}>",
)

PAYLOADS = (*SCRIPTS, *HANDLERS, *LINKS, *FOREIGN_CONTENT, *TEMPLATES, *ENTITIES_AND_CHARACTERS)
