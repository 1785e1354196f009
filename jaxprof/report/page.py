"""Style and script of the HTML report."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--panel:#f7f8fa;--text:#1c2129;--dim:#667085;--line:#e3e6eb;--lane:#eceff3;
--compute:#2e9e5b;--hbm:#3b76d6;--transfer:#a34fc4;--wait:#d9483b;--host:#d99a1c;--idle:#aab1bc;--loss:#2199a6;
--other:#8a93a0;--total:#4b5563}
@media (prefers-color-scheme:dark){:root{--bg:#12151a;--panel:#1a1f26;--text:#e4e7ec;--dim:#98a2b3;--line:#2b323c;
--lane:#232a33;--compute:#4cc47c;--hbm:#6b9cf0;--transfer:#c07fe0;--wait:#f0695c;--host:#e8b44a;--idle:#5b6472;
--loss:#45bcc9;--other:#7b8594;--total:#c3c9d3}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1280px;padding:28px 24px 48px;background:var(--bg);color:var(--text);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
.title{margin:0;color:var(--dim);font-weight:600;overflow-wrap:anywhere}
h1{margin:4px 0 18px;font-size:22px;line-height:1.35;font-weight:650;max-width:60em}
h2{margin:0 0 10px;font-size:15px;font-weight:650}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0 0 24px}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:18px}
section{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:16px 18px;min-width:0}
.grid .full{grid-column:1/-1}body>section{margin-top:18px}
@media (max-width:900px){.grid{grid-template-columns:minmax(0,1fr)}}
.scroll{overflow-x:auto}.tall{max-height:640px;overflow-y:auto}
table{border-collapse:collapse;width:100%;font-size:13px}
th{text-align:left;font-weight:500;color:var(--dim);white-space:nowrap}
th,td{padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}tr:last-child td{border-bottom:0}
section td:last-child{white-space:normal;min-width:90px}
th.right,td.right{text-align:right}
td.name{max-width:26em;overflow:hidden;text-overflow:ellipsis;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
font-size:12px;white-space:nowrap!important}
.tall thead th{position:sticky;top:0;background:var(--panel)}
th button{all:unset;cursor:pointer}th button:hover,th button:focus-visible{color:var(--text);text-decoration:underline}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
.bar{height:12px;min-width:110px;margin-top:4px;background:var(--lane);border-radius:2px;overflow:hidden}
.bar i{display:block;height:100%;min-width:1px}
.compute,.ideal{background:var(--compute);fill:var(--compute)}.hbm,.part{background:var(--hbm);fill:var(--hbm)}
.transfer{background:var(--transfer);fill:var(--transfer)}.wait{background:var(--wait);fill:var(--wait)}
.host{background:var(--host);fill:var(--host)}.idle{background:var(--idle);fill:var(--idle)}
.loss{background:var(--loss);fill:var(--loss)}.other{background:var(--other);fill:var(--other)}
.total{background:var(--total)}
.mark{color:var(--dim);font-size:10px;vertical-align:super;margin-left:2px}
.unknown{color:var(--dim);font-style:italic}
.note{margin:8px 0 0;color:var(--dim);font-size:13px;overflow-wrap:anywhere}
.keys{margin:0 0 10px;display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px}
.key i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
input{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:5px;
padding:3px 8px;width:22em;max-width:100%}
svg.timeline{display:block;width:100%;min-width:760px}
svg text{fill:var(--dim);font-size:11px}svg .lane{fill:var(--lane)}svg rect:hover{opacity:.7}
.warnings{border-color:var(--host)}.warnings ul{margin:0;padding-left:18px;overflow-wrap:anywhere}
footer{margin-top:22px;color:var(--dim);font-size:12px}footer p{margin:2px 0;overflow-wrap:anywhere}
footer .mark{vertical-align:baseline;font-weight:700;font-size:12px;margin-left:8px}
"""

SCRIPT = """
const table=document.getElementById("ops"),body=table.tBodies[0],heads=[...table.tHead.rows[0].cells];
const key=(row,i)=>{const c=row.cells[i];return c.classList.contains("right")?parseFloat(c.dataset.v):c.textContent};
heads.forEach((head,i)=>head.addEventListener("click",()=>{
  const numbers=head.classList.contains("right");
  const now=head.getAttribute("aria-sort"),up=now?now==="descending":!numbers;
  heads.forEach(h=>h.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort",up?"ascending":"descending");
  const order=(a,b)=>{const x=key(a,i),y=key(b,i);
    if(numbers){if(isNaN(x)||isNaN(y))return isNaN(x)-isNaN(y);return up?x-y:y-x}
    return up?x.localeCompare(y):y.localeCompare(x)};
  body.append(...[...body.rows].sort(order));
}));
document.getElementById("find").addEventListener("input",event=>{
  const wanted=event.target.value.toLowerCase();
  for(const row of body.rows)row.hidden=!row.textContent.toLowerCase().includes(wanted);
});
"""
