//! The requests that each product sends, and the responses that it expects.

/// A request of a product.
pub(crate) struct Product {
    /// Its name.
    pub(crate) name: &'static str,
    /// The header by which its pages name their tags.
    pub(crate) tags: &'static str,
    /// The request. `{cache}` is the address of the gateway.
    pub(crate) request: &'static str,
    /// The body of the response.
    pub(crate) response: &'static str,
    /// Which pages are invalidated, and how.
    pub(crate) effect: Effect,
}

/// The pages of the test that a request invalidates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// One page, or the pages of a tag. They must not be served any more.
    Page,
    /// One page, or the pages of a tag. They may be served stale once more.
    SoftPage,
    /// All pages.
    Everything,
}

use Effect::{Everything, Page, SoftPage};

/// The page that is invalidated.
pub(crate) const PAGE: &str = "/section/page";

const fn product(name: &'static str, request: &'static str, effect: Effect) -> Product {
    Product { name, tags: "", request, response: "Purged", effect }
}

const fn tagged(name: &'static str, tags: &'static str, request: &'static str, effect: Effect) -> Product {
    Product { name, tags, request, response: "Purged", effect }
}

const fn banned(name: &'static str, tags: &'static str, request: &'static str, effect: Effect) -> Product {
    Product { name, tags, request, response: "Banned", effect }
}

/// A line for each row of the purge protocols.
pub(crate) const PRODUCTS: [Product; 43] = [
    product(
        "Wagtail",
        "PURGE /section/page HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: www.example.com\r\nUser-Agent: Wagtail-frontendcache/6.2\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "Wagtail, with a port",
        "PURGE /section/page HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: www.example.com:80\r\nUser-Agent: Wagtail-frontendcache/6.2\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "WordPress, Proxy Cache Purge",
        "PURGE /section/page HTTP/1.1\r\nhost: www.example.com\r\nX-Purge-Method: default\r\nUser-Agent: WordPress/6.5; https://www.example.com\r\nAccept: */*\r\nAccept-Encoding: deflate, gzip, br\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "WordPress, Proxy Cache Purge, everything",
        "PURGE /.* HTTP/1.1\r\nhost: www.example.com\r\nX-Purge-Method: regex\r\nUser-Agent: WordPress/6.5; https://www.example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Everything,
    ),
    product(
        "WP Rocket",
        "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nX-Purge-Method: default\r\nUser-Agent: WordPress/6.5\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "WP Rocket, below",
        "PURGE /section/.* HTTP/1.1\r\nHost: www.example.com\r\nX-Purge-Method: regex\r\nUser-Agent: WordPress/6.5\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "WP Rocket, beginning with",
        "PURGE /section/pa.* HTTP/1.1\r\nHost: www.example.com\r\nX-Purge-Method: regex\r\nUser-Agent: WordPress/6.5\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "W3 Total Cache",
        "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: W3 Total Cache\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "W3 Total Cache, everything",
        "PURGE /.* HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: W3 Total Cache\r\nConnection: close\r\n\r\n",
        Everything,
    ),
    product(
        "rtCamp Nginx Helper",
        "GET /purge/section/page HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: WordPress/6.5\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Page,
    ),
    product(
        "rtCamp Nginx Helper, everything",
        "PURGE /purgeall HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: WordPress/6.5\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        Everything,
    ),
    product(
        "Plone",
        "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: python-requests/2.32\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
        Page,
    ),
    product(
        "MediaWiki",
        "PURGE http://www.example.com/section/page HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: MediaWiki/1.42\r\nConnection: Keep-Alive\r\nProxy-Connection: Keep-Alive\r\n\r\n",
        Page,
    ),
    product(
        "Drupal, zero-config purger",
        "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: GuzzleHttp/7\r\n\r\n",
        Page,
    ),
    product(
        "FOSHttpCache",
        "PURGE /section/page HTTP/1.1\r\nConnection: Close\r\nUser-Agent: Symfony HttpClient\r\nHost: www.example.com\r\n\r\n",
        Page,
    ),
    Product {
        response: "{\"id\"",
        ..product(
            "Fastly",
            "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nFastly-Key: 0123456789abcdef\r\nAccept: application/json\r\n\r\n",
            Page,
        )
    },
    Product {
        response: "{\"id\"",
        ..product(
            "Fastly, soft",
            "PURGE /section/page HTTP/1.1\r\nHost: www.example.com\r\nFastly-Key: 0123456789abcdef\r\nFastly-Soft-Purge: 1\r\nAccept: application/json\r\n\r\n",
            SoftPage,
        )
    },
    banned(
        "FOSHttpCache, ban",
        "X-Cache-Tags: a-b,other",
        "BAN / HTTP/1.1\r\nX-Cache-Tags: (^|,)(a\\-b|c\\.d)(,|$)\r\nX-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\nHost: www.example.com\r\nConnection: Close\r\n\r\n",
        Page,
    ),
    banned(
        "FOSHttpCache, ban of URLs",
        "",
        "BAN / HTTP/1.1\r\nX-Cache-Tags: .*\r\nX-Host: .*\r\nX-Url: ^/section/.*\r\nX-Content-Type: .*\r\nHost: www.example.com\r\nConnection: Close\r\n\r\n",
        Page,
    ),
    banned(
        "Neos",
        "X-Cache-Tags: Node_1,Everything",
        "BAN / HTTP/1.1\r\nX-Cache-Tags: (^|,)(Node_1)(,|$)\r\nX-Host: .*\r\nX-Url: .*\r\nX-Content-Type: .*\r\nX-Site: token\r\nHost: www.example.com\r\n\r\n",
        Page,
    ),
    tagged(
        "FOSHttpCache, xkey",
        "xkey: a b",
        "PURGEKEYS / HTTP/1.1\r\nxkey-softpurge: b c\r\nHost: www.example.com\r\n\r\n",
        SoftPage,
    ),
    tagged(
        "Ibexa",
        "xkey: l2 c52",
        "PURGEKEYS / HTTP/1.1\r\nxkey-purge: c52\r\nX-Invalidate-Token: 0123456789abcdef\r\nHost: www.example.com\r\n\r\n",
        Page,
    ),
    tagged(
        "Symfony HttpCache",
        "X-Cache-Tags: a,b",
        "PURGETAGS / HTTP/1.1\r\nX-Cache-Tags: b,c\r\nHost: www.example.com\r\n\r\n",
        Page,
    ),
    product(
        "Symfony HttpCache, everything",
        "PURGE / HTTP/1.1\r\nClear-Cache: true\r\nHost: www.example.com\r\n\r\n",
        Everything,
    ),
    tagged(
        "Shopware",
        "xkey: product-1 category-2",
        "PURGE / HTTP/1.1\r\nHost: {cache}\r\nUser-Agent: GuzzleHttp/7\r\nxkey: product-1 product-9\r\n\r\n",
        Page,
    ),
    product(
        "Shopware, a URL",
        "PURGE /section/page HTTP/1.1\r\nHost: {cache}\r\nUser-Agent: GuzzleHttp/7\r\n\r\n",
        Page,
    ),
    product(
        "Shopware, a URL by a name of the cache",
        "PURGE /section/page HTTP/1.1\r\nHost: facetheory.shop.svc.cluster.local\r\nUser-Agent: GuzzleHttp/7\r\n\r\n",
        Page,
    ),
    banned(
        "Shopware, everything",
        "",
        "BAN / HTTP/1.1\r\nHost: {cache}\r\nUser-Agent: GuzzleHttp/7\r\n\r\n",
        Everything,
    ),
    tagged(
        "API Platform, xkey",
        "xkey: /books/1 /books",
        "PURGE / HTTP/1.1\r\nHost: {cache}\r\nxkey: /books/1 /books/2\r\n\r\n",
        Page,
    ),
    banned(
        "API Platform, ban",
        "Cache-Tags: /books/1,/books",
        "BAN / HTTP/1.1\r\nHost: {cache}\r\nApiPlatform-Ban-Regex: (/books/1|/books/2)($|\\,)\r\n\r\n",
        Page,
    ),
    tagged(
        "API Platform, Souin",
        "Surrogate-Key: /books/1, /books",
        "PURGE /souin-api/souin HTTP/1.1\r\nHost: {cache}\r\nSurrogate-Key: /books/1, /books/2\r\n\r\n",
        Page,
    ),
    tagged(
        "vmod xkey",
        "xkey: 166412",
        "PURGE / HTTP/1.1\r\nHost: www.example.com\r\nxkey: 166412\r\n\r\n",
        Page,
    ),
    tagged(
        "Magento",
        "X-Magento-Tags: cat_p_49877,cat_c,FPC",
        "PURGE http://{cache} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Magento-Tags-Pattern: ((^|,)cat_p_49877(,|$))|((^|,)cat_p(,|$))\r\n\r\n",
        Page,
    ),
    tagged(
        "Magento, everything",
        "X-Magento-Tags: cat_p_1,FPC",
        "PURGE http://{cache} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Magento-Tags-Pattern: .*\r\n\r\n",
        Everything,
    ),
    banned(
        "Drupal",
        "Cache-Tags: node:1 node_list",
        "BAN / HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: GuzzleHttp/7\r\nCache-Tags: node:1|node:2\r\n\r\n",
        Page,
    ),
    banned(
        "Drupal, zero-config purger, tags",
        "Purge-Cache-Tags: node:1 node_list",
        "BAN /tags HTTP/1.1\r\nHost: {cache}\r\nCache-Tags: node:1 node:2 config:system.site\r\n\r\n",
        Page,
    ),
    banned(
        "Drupal, zero-config purger, wildcard",
        "",
        "BAN /section/page* HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        Page,
    ),
    banned(
        "Drupal, zero-config purger, everything",
        "",
        "BAN /site HTTP/1.1\r\nHost: {cache}\r\n\r\n",
        Everything,
    ),
    banned(
        "TYPO3",
        "X-Tags: pageId_7,typo3",
        "BAN / HTTP/1.1\r\nHost: {cache}\r\nX-Ban-Tags: pageId_7\r\n\r\n",
        Page,
    ),
    banned("TYPO3, everything", "", "BAN / HTTP/1.1\r\nHost: {cache}\r\nX-Ban-All: 1\r\n\r\n", Everything),
    tagged(
        "eZ Platform",
        "xkey: location-42 content-7",
        "PURGE / HTTP/1.1\r\nHost: www.example.com\r\nkey: location-42\r\n\r\n",
        Page,
    ),
    product(
        "eZ Platform, everything",
        "PURGE / HTTP/1.1\r\nHost: www.example.com\r\nkey: ez-all\r\n\r\n",
        Everything,
    ),
    banned(
        "a pattern of no known form",
        "Cache-Tags: cat_1",
        "BAN / HTTP/1.1\r\nHost: www.example.com\r\nCache-Tags: cat_[0-9]+\r\n\r\n",
        Everything,
    ),
];
