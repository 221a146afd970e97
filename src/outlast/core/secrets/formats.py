"""The formats of tokens that identify themselves: how each begins, and what follows. Data for `secrets`.

They cover what gitleaks (July 2026) and detect-secrets (1.5) know; the rules are ours. Matching is linear in the text."""

import msgspec

_ALNUM, _WORD, _HEX, _BASE64 = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[0-9A-Fa-f]", "[A-Za-z0-9+/]"
_END = "(?![A-Za-z0-9])"
_NO_BASE64 = "(?![A-Za-z0-9+/=])"  # after a beginning so short that any encoded image may contain it


class Format(msgspec.Struct, frozen=True):
    """Tokens of one kind: literal beginnings, and the pattern of what follows. Masks the group `secret`, or everything.

    A literal beginning, then bounded runs of characters: the regex never backtracks. A format is looser than its maker's
    where the beginning is unmistakable, and exact where the beginning is short.
    """

    name: str
    starts: tuple[str, ...]
    rest: str


def _of(name: str, starts: str, rest: str) -> Format:
    return Format(name, tuple(starts.split()), rest)


FORMATS = (
    # --- forges and registries ---
    _of("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_ALNUM}{{36,}}"),
    _of("GitHub token", "github_pat_", "[A-Za-z0-9_]{22,}"),
    _of(
        "GitLab token",
        "glpat- gldt- glffct- glft- glimt- glagent- gloas- glptt- glrt- glsoat- glcbt- glwt-",
        r"[A-Za-z0-9_.-]{20,}",
    ),
    _of("GitLab token", "GR1348941", f"{_WORD}{{20,}}"),
    _of("GitLab session", "_gitlab_session=", f"(?P<secret>{_ALNUM}{{32,}})"),
    _of("npm token", "npm_", f"{_ALNUM}{{36,}}"),
    _of("PyPI token", "pypi-AgE", f"{_WORD}{{50,}}"),
    _of("RubyGems key", "rubygems_", f"{_HEX}{{48,}}"),
    _of("Clojars token", "CLOJARS_", f"{_ALNUM}{{60}}"),
    _of("Artifactory key", "AKCp", f"{_ALNUM}{{10,}}"),
    _of("Artifactory token", "cmVmd", f"{_ALNUM}{{59}}{_END}"),
    _of("Artifactory password", "AP",
        rf"(?<![+/-]AP)[0-9A-F](?=[A-Za-z]{{0,40}}[0-9])(?=[A-Z0-9]{{0,40}}[a-z]){_ALNUM}{{10,72}}{_NO_BASE64}"),
    _of("Sourcegraph token", "sgp_", f"(?:(?:{_HEX}{{16}}|local)_)?{_HEX}{{40}}{_END}"),
    _of("Bitbucket password", "ATBB", f"{_ALNUM}{{28,}}"),
    _of("Atlassian token", "ATATT3 ATCTT3", "[A-Za-z0-9_=-]{40,}"),
    _of("Postman key", "PMAK-", f"{_HEX}{{24}}-{_HEX}{{34}}"),
    _of("ReadMe key", "rdme_", f"{_ALNUM}{{60,}}"),
    _of("Linear key", "lin_api_ lin_oauth_", f"{_ALNUM}{{32,}}"),
    _of("Notion token", "ntn_", f"{_ALNUM}{{40,}}"),
    _of("Snyk token", "snyk_uat. snyk_sat.", r"[A-Za-z0-9_.-]{20,}"),
    _of("Sonar token", "squ_ sqp_ sqa_", f"{_ALNUM}{{40}}{_END}"),
    _of("Octopus key", "API-", f"[A-Z0-9]{{26,32}}{_END}"),
    # --- models ---
    _of("Anthropic key", "sk-ant-", f"{_WORD}{{20,}}"),
    _of("API key", "sk-proj- sk-svcacct- sk-admin- sk-or-", f"{_WORD}{{20,}}"),
    _of("API key", "sk-", f"{_ALNUM}{{20,}}"),
    _of("Hugging Face token", "hf_", f"{_ALNUM}{{30,}}"),
    _of("Hugging Face token", "api_org_", f"{_ALNUM}{{30,}}"),
    _of("Perplexity key", "pplx-", f"{_ALNUM}{{32,}}"),
    _of("Groq key", "gsk_", f"{_ALNUM}{{40,}}"),
    _of("xAI key", "xai-", f"{_ALNUM}{{60,}}"),
    _of("Replicate token", "r8_", f"{_ALNUM}{{37}}{_END}"),
    # --- clouds ---
    _of("AWS key", "AKIA ASIA ABIA ACCA", f"[A-Z0-9]{{16}}{_END}"),
    _of("AWS key", "A3T", f"[A-Z0-9]{{17}}{_END}"),
    _of("Bedrock key", "ABSK", f"{_BASE64}{{100,}}={{0,2}}"),
    _of("Bedrock key", "bedrock-api-key-", "[A-Za-z0-9+/=]{20,}"),
    _of("Google key", "AIza", f"{_WORD}{{35}}"),
    _of("Google token", "ya29.", f"{_WORD}{{20,}}"),
    _of("Google secret", "GOCSPX-", f"{_WORD}{{20,}}"),
    _of("Azure key", "AccountKey= SharedAccessKey=", f"(?P<secret>{_BASE64}{{40,}}={{0,2}})"),
    _of("Alibaba key", "LTAI", f"{_ALNUM}{{12,26}}{_END}"),
    _of("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", f"{_HEX}{{64}}"),
    _of("Cloudflare key", "v1.0-", f"{_HEX}{{24}}-{_HEX}{{100,}}"),
    _of("Databricks token", "dapi", f"{_HEX}{{32}}(?:-[0-9])?{_END}"),
    _of("Fly.io token", "fo1_", f"{_WORD}{{43}}"),
    _of("Fly.io token", "fm1a_ fm1r_ fm2_", f"{_BASE64}{{100,}}={{0,3}}"),
    _of("Heroku key", "HRKU-AA", f"{_WORD}{{58}}"),
    _of("Scalingo token", "tk-us-", f"{_WORD}{{48}}"),
    _of("ClickHouse key", "4b1d", f"{_ALNUM}{{38}}{_END}"),
    _of("PlanetScale key", "pscale_tkn_ pscale_oauth_ pscale_pw_", "[A-Za-z0-9_=.-]{32,}"),
    _of("Yandex key", "AQVN", f"{_WORD}{{35,38}}{_END}"),
    _of("Yandex key", "YC", f"(?<![+/]YC)(?=[A-Za-z]{{0,38}}[0-9]){_WORD}{{38}}{_NO_BASE64}"),
    _of("Yandex token", "t1.", rf"[A-Z0-9a-z_-]{{1,2000}}={{0,2}}\.{_WORD}{{86}}"),
    _of("OpenShift token", "sha256~", f"{_WORD}{{43}}"),
    # --- infrastructure ---
    _of("Vault token", "hvs. hvb. hvr.", f"{_WORD}{{24,}}"),
    _of("Vault token", "s.", rf"(?=[A-Za-z]{{0,23}}[0-9]){_ALNUM}{{24}}(?![A-Za-z0-9_.(\[])"),
    _of("Doppler token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[A-Za-z0-9_.-]{40,}"),
    _of("Pulumi token", "pul-", f"{_HEX}{{40}}{_END}"),
    _of("Prefect key", "pnu_ pnb_", f"{_ALNUM}{{36}}{_END}"),
    _of("Infracost key", "ico-", f"{_ALNUM}{{32}}{_END}"),
    _of("Harness key", "pat. sat.", rf"{_WORD}{{22}}\.{_ALNUM}{{24}}\.{_ALNUM}{{20}}"),
    _of("Airtable token", "pat", rf"{_ALNUM}{{14}}\.{_HEX}{{64}}"),
    _of("1Password key", "A3-", r"[A-Z0-9]{6}(?:-[A-Z0-9]{5,11}){4,5}"),
    _of("1Password token", "ops_eyJ", f"{_BASE64}{{40,}}={{0,3}}"),
    _of("age key", "AGE-SECRET-KEY-1", "[A-Z0-9]{50,}"),
    _of("Grafana key", "eyJrIjoi", f"{_BASE64}{{70,}}={{0,3}}"),
    _of("Grafana token", "glc_", f"{_BASE64}{{32,}}={{0,3}}"),
    _of("Grafana token", "glsa_", f"{_ALNUM}{{32}}_{_HEX}{{8}}"),
    _of("New Relic key", "NRAK- NRII- NRJS- NRRA-", "[A-Za-z0-9-]{19,}"),
    _of("Dynatrace token", "dt0c01. dt0s01. dt0s02. dt0s08.", r"[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    _of("Sentry token", "sntrys_ sntryu_", "[A-Za-z0-9+/=_]{40,}"),
    _of("Defined Networking key", "dnkey-", r"[A-Za-z0-9=_-]{50,}"),
    _of("Authress key", "sc_ ext_ scauth_ authress_",
        r"[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,}"),
    _of("SettleMint token", "sm_aat_ sm_pat_ sm_sat_", f"{_ALNUM}{{16,}}"),
    _of("intra42 secret", "s-s4t2ud- s-s4t2af-", f"{_HEX}{{64}}"),
    # --- talk ---
    _of("Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", "[A-Za-z0-9-]{10,}"),
    _of("Slack token", "xapp-", "[0-9]-[A-Za-z0-9-]{10,}"),
    _of("Slack webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/]{20,})"),
    _of("Discord webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"(?P<secret>[0-9]{5,}/[A-Za-z0-9_-]{20,})"),
    _of("Teams webhook", "webhook.office.com/webhookb2/", r"(?P<secret>[A-Za-z0-9@/_-]{60,})"),
    _of("SendGrid key", "SG.", r"[A-Za-z0-9=_.-]{60,}"),
    _of("Sendinblue key", "xkeysib- xsmtpsib-", f"{_HEX}{{64}}-{_ALNUM}{{16}}"),
    _of("Mailgun key", "key- pubkey-", f"{_HEX}{{32}}{_END}"),
    _of("Twilio key", "SK AC", f"{_HEX}{{32}}{_END}"),
    _of("Frame.io token", "fio-u-", r"[A-Za-z0-9_=-]{64}"),
    _of("Typeform token", "tfp_", r"[A-Za-z0-9_.=-]{40,}"),
    _of("Beamer token", "b_", r"(?=[A-Za-z_=-]{0,43}[0-9])[A-Za-z0-9=_-]{44}(?![A-Za-z0-9=_-])"),
    _of("Telegram token", "", rf"[0-9]{{5,16}}:A{_WORD}{{34}}(?![A-Za-z0-9_-])"),
    _of("Discord token", "", rf"[MNO]{_WORD}{{23,25}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),
    # --- money and trade ---
    _of("Stripe key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", f"{_ALNUM}{{10,}}"),
    _of("Stripe secret", "whsec_", f"{_BASE64}{{24,}}={{0,2}}"),
    _of("Square token", "EAAA", f"{_WORD}{{22,60}}{_END}"),
    _of("Square token", "sq0atp- sq0csp- sq0idp-", f"{_WORD}{{22,}}"),
    _of("Facebook token", "EAAM EAAC EAAB", f"{_ALNUM}{{100,}}"),
    _of("Facebook token", "", r"[0-9]{15,16}[|%][A-Za-z0-9_-]{27,40}"),
    _of("Shopify token", "shpat_ shpca_ shppa_ shpss_", f"{_HEX}{{32}}"),
    _of("Shippo token", "shippo_live_ shippo_test_", f"{_HEX}{{40}}"),
    _of("EasyPost key", "EZAK EZTK", f"{_ALNUM}{{54}}"),
    _of("Duffel token", "duffel_test_ duffel_live_", "[A-Za-z0-9_=-]{43}"),
    _of("Flutterwave key", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST- FLWPUBK-", r"[A-Ha-h0-9]{12,32}(?:-X)?"),
    _of("GoCardless token", "live_", r"(?=[A-Za-z_=-]{0,39}[0-9])[A-Za-z0-9_=-]{40}(?![A-Za-z0-9_=-])"),
    _of("Lob key", "live_ test_ live_pub_ test_pub_", f"{_HEX}{{31,35}}{_END}"),
    # --- the rest ---
    _of("Adobe secret", "p8e-", f"{_ALNUM}{{32}}{_END}"),
    _of("Dropbox token", "sl.", r"[A-Za-z0-9_=-]{100,}"),
    _of("Mapbox token", "pk. sk. tk.", rf"{_ALNUM}{{60,}}\.{_ALNUM}{{22}}"),
    _of("MaxMind key", "", rf"{_ALNUM}{{6}}_{_ALNUM}{{29}}_mmk{_END}"),
    _of("Mailchimp key", "", rf"[0-9a-f]{{32}}-us[0-9]{{1,2}}{_END}"),
    _of("Terraform token", "", rf"{_ALNUM}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{60,}}"),
    _of("Azure secret", "", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    _of("Twitter token", "AAAAAAAAAAAAAAAAAAAAAA", "(?=[A-Za-z0-9]{0,100}%)[A-Za-z0-9%]{60,110}"),
    _of("JSON web token", "ey", r"[A-Za-z0-9]{17,}\.ey[A-Za-z0-9_/-]{17,}\.(?:[A-Za-z0-9_/-]{10,}={0,2})?"),
    _of("JSON web token", "ZXlK", f"{_BASE64}{{40,}}={{0,2}}"),
)  # fmt: skip

# Services whose keys have no recognisable shape: the name before the key gives it away.
SERVICES = (
    "adafruit adobe airtable algolia alibaba asana atlassian confluence jira bitbucket bittrex meraki cloudflare codecov cohere"
    " coinbase confluent contentful datadog discord droneci dropbox etsy facebook fastly finicity finnhub flickr freshbooks"
    " gitter gocardless heroku hubspot intercom jfrog artifactory bintray kraken kucoin launchdarkly linear linkedin linked_in"
    " lob looker mailchimp mailgun mapbox mattermost messagebird message_bird netlify newrelic new_relic new-relic nytimes okta"
    " plaid privateai private_ai rapidapi sendbird sentry snyk sonar squarespace sumo sumologic telegram travis twitch twitter"
    " yandex zendesk softlayer cloudant ibm_cloud ibmcloud cos_hmac sourcegraph"
).split()
