package resilience_test

import "strings"

// scrubTexts returns errors as drivers, clients and command lines word them, by their kind. What
// is in ⟦ ⟧ is secret.
func scrubTexts() map[string][]string {
	return map[string][]string{
		"databases": {
			`pq: password authentication failed for user "admin" at 10.0.0.7`,
			`FATAL: password authentication failed for user "app" (SQLSTATE 28P01)`,
			`failed to connect to ` + "`host=db.internal user=app database=shop`" + `: dial error (dial tcp ` +
				`10.0.0.7:5432: connect: connection refused)`,
			`cannot parse ` + "`host=db user=app password=⟦hunter2⟧ sslmode=off`" + `: failed to configure TLS ` +
				`(sslmode is invalid)`,
			`cannot parse "postgres://⟦app:hunter2⟧@db.internal:5432/shop?sslmode=off"`,
			`parse "postgres://⟦app:hun#ter2⟧@db.internal:5432/shop": invalid port ":hun" after host`,
			`parse "postgres://⟦app:hun/ter?2⟧@db.internal/shop": first path segment in URL cannot contain colon`,
			`parse "postgres://⟦app:p@ss/w?rd⟧@db:5432/shop": invalid port`,
			`parse "postgres://⟦app:p@ss/word⟧@db.internal/shop": invalid character`,
			`GET https://⟦app:p@ss⟧@registry.example.com/@scope/pkg@1.2: 404`,
			`GET http://⟦app:hunter2⟧@gateway/users/@me: 404`,
			`dsn: host=db port=5432 user=app password='⟦hun ter2⟧' dbname=shop`,
			`ERROR: duplicate key value violates unique constraint "users_email_key" (SQLSTATE 23505) Key ` +
				`(email)=(bob@example.com) already exists.`,
			`Key (id)=(42) is still referenced from table "orders".`,
			`ERROR: syntax error at or near "ALTER": ALTER USER app WITH PASSWORD '⟦hunter2⟧'`,
			`ERROR: column "token" does not exist (SQLSTATE 42703)`,
			`ERROR: null value in column "password" of relation "users" violates not-null constraint`,
			`query failed: SELECT u.id FROM users u JOIN tokens t ON t.token = u.last_token WHERE u.key = $1`,
			`query failed: UPDATE users SET password = $1 WHERE id = 17`,
			`query failed: SELECT 1 FROM users WHERE password = '⟦hunter2⟧' AND id = 17`,
			`Error 1045 (28000): Access denied for user 'root'@'10.0.0.7' (using password: YES)`,
			`dial ⟦root:hunter2⟧@tcp(10.0.0.7:3306)/shop: i/o timeout`,
			`sql: open "⟦root:p@ss:w/rd⟧@tcp(db:3306)/shop?parseTime=true": invalid DSN`,
			`sql: open "⟦root:hunter2⟧@/shop": unknown database`,
			`dsn=⟦root:hunter2⟧@unix(/run/mysqld.sock)/shop`,
			`You have an error in your SQL syntax near 'IDENTIFIED BY '⟦hunter2⟧'' at line 1`,
			`Error 1062 (23000): Duplicate entry 'bob@example.com' for key 'users.email'`,
			`Server=tcp:db.internal,1433;Initial Catalog=shop;User ID=app;Password=⟦hun!ter2⟧;Encrypt=True;`,
			`mssql: login error: Login failed for user 'app'. server=db;uid=app;pwd=⟦hunter2⟧;database=shop`,
			`ORA-01017: invalid username/password; logon denied`,
			`connection() error occurred during connection handshake: auth error: sasl conversation error: unable ` +
				`to authenticate using mechanism "SCRAM-SHA-256": (AuthenticationFailed) Authentication failed.`,
			`error parsing uri: mongodb://⟦app:hunter2⟧@m1:27017,m2:27017/shop?replicaSet=rs0&authSource=admin: ` +
				`no such host`,
			`mongodb+srv://⟦app:p%40ss⟧@cluster0.ab1cd.mongodb.net: lookup ` +
				`_mongodb._tcp.cluster0.ab1cd.mongodb.net: no such host`,
			`E11000 duplicate key error collection: shop.users index: email_1 dup key: { email: "bob@example.com" }`,
			`WRONGPASS invalid username-password pair or user is disabled.`,
			`NOAUTH Authentication required.`,
			`dial redis://⟦:hunter2⟧@cache.internal:6379/0: connect: connection refused`,
			`redis: key=user:42 not found`,
			`WRONGTYPE Operation against a key holding the wrong kind of value`,
			`neo4j: Neo.ClientError.Security.Unauthorized: The client is unauthorized due to authentication failure.`,
			`elastic: Error 401 (Unauthorized): missing authentication credentials for REST request [/_search] ` +
				`[type=security_exception]`,
			`{"type":"security_exception","reason":"unable to authenticate user [app] for REST request ` +
				`[/_search]","header":{"WWW-Authenticate":"Basic realm=\"security\" charset=\"UTF-8\""}}`,
			`clickhouse: code: 516, message: app: Authentication failed: password is incorrect, or there is no ` +
				`user with such name.`,
			`Invalid username or password. jdbc:mysql://db:3306/shop?user=app&password=⟦hunter2⟧&useSSL=false`,
			`snowflake: 390100 (08004): Incorrect username or password was specified. account=ab12345 user=APP`,
			`cassandra: unable to create session: gocql: no hosts available in the pool; authenticator: ` +
				`"PasswordAuthenticator"`,
		},
		"HTTP": {
			`Get "https://⟦user:hunter2⟧@db.internal/x?token=⟦abc⟧": dial tcp 10.0.0.7:443: connect: connection ` +
				`refused`,
			`Get "https://api.example.com/v1/items?page=2&api_key=⟦abc-123⟧&sort=name": context deadline exceeded`,
			`Post "https://api.example.com:8443/login": x509: certificate signed by unknown authority`,
			`Get "https://user@host.example.com/path": EOF`,
			`Get "https://example.com:8080/@user/repo": EOF`,
			`401 Unauthorized: Bearer ⟦abc123def456⟧ is not valid`,
			`request failed: Authorization: Bearer ⟦x⟧`,
			`request failed: Authorization: Basic ⟦dXNlcjpwYXNz⟧`,
			`curl -H "Authorization: Bearer ⟦abc.def-123⟧" -H "Accept: */*" https://api.example.com: exit status 22`,
			`curl -H 'X-Api-Key: ⟦abcdef⟧' https://api.example.com/v1`,
			`map[Accept:[*/*] Authorization:⟦[Bearer abc123]⟧ User-Agent:[Go-http-client/1.1]]`,
			`{"headers":{"Authorization":"⟦Bearer abc123⟧","Accept":"*/*"},"status":401}`,
			`{"headers":{"X-Auth-Token":⟦["abc","def"]⟧,"Accept":["*/*"]}}`,
			"GET / HTTP/1.1\nHost: example.com\nCookie: ⟦session=abc123; theme=dark⟧\nAccept: */*",
			"HTTP/1.1 200 OK\r\nSet-Cookie: ⟦sid=abc123; Path=/; HttpOnly⟧\r\nContent-Length: 12\r\n",
			`Authorization: Digest ⟦username="bob", realm="x", nonce="1f2e", response="9a8b7c"⟧`,
			`www-authenticate: Bearer ` +
				`realm="https://auth.docker.io/token",service="registry.docker.io",` +
				`scope="repository:library/nginx:pull"`,
			`Bearer error="invalid_token", error_description="The access token expired"`,
			`Proxy-Authorization: Basic ⟦Ym9iOmh1bnRlcjI=⟧`,
			`proxyconnect tcp: dial tcp: lookup http://⟦bob:hunter2⟧@proxy.internal:3128: no such host`,
			`Bearer token is missing`,
			`missing bearer authentication in header`,
			`Basic authentication is required`,
			`unexpected status code 403: {"message":"Forbidden","request_id":"550e8400-e29b-41d4-a716-446655440000"}`,
			`{"error":{"code":401,"message":"bad","debug":"{\"password\":\"⟦hunter2⟧\",\"user\":\"bob\"}"}}`,
			`{"a":"{\\\"client_secret\\\":\\\"⟦abc\\\\\\\"def⟧\\\",\\\"id\\\":7}"}`,
			`{"password":"⟦hunter`,
			`invalid character '<' looking for beginning of value`,
			`json: unknown field "token"`,
			`GET https://cb.example.com/?code=200&state=x\u0026token=⟦abc⟧\u0026next=/home`,
			`<wsse:Password Type="http://example.com/wss#PasswordText">⟦hunter2⟧</wsse:Password>`,
			"<password\r\n\txsi:type=\"xs:string\">⟦hunter2⟧</password>",
			`<password xsi:nil="true"/>hunter2`, `login <password or file>hunter2`, `cat <token out=1 >hunter2`, `<input type="password" name="q"> hunter2 <b>`,
			`<password hint="blue"><b>bold</b></password>`,
			`<soap:Fault><wsse:Username>bob</wsse:Username><wsse:Password>⟦hunter2⟧</wsse:Password></soap:Fault>`,
			`https:\/\/⟦bob:hunter2⟧@example.com\/x`,
			`error: {"max_tokens": 4096, "prompt_tokens": 12, "total_tokens":4108}`,
		},
		"clouds": {
			`NoSuchKey: The specified key does not exist. status code: 404, request id: 4442587FB7D0A2F9, host id: abc`,
			`operation error S3: GetObject, https response error StatusCode: 404, RequestID: 4442587FB7D0A2F9, ` +
				`NoSuchKey: key: photos/2024/cat.jpg`,
			`<Error><Code>NoSuchKey</Code><Key>photos/cat.jpg</Key><RequestId>4442587FB7D0A2F9</RequestId></Error>`,
			`InvalidAccessKeyId: The AWS Access Key Id ⟦` + akia + `⟧ you provided does not exist in our records.`,
			`aws_secret_access_key = ⟦` + letters[:20] + `/` + letters[:19] + `⟧`,
			`AWS_SECRET_ACCESS_KEY=⟦` + letters[:40] + `⟧ AWS_REGION=eu-central-1`,
			`GET https://b.s3.amazonaws.com/cat.jpg?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=⟦` + akia +
				`%2F20240102%2Feu-central-1%2Fs3%2Faws4_request⟧&X-Amz-Expires=900&X-Amz-Signature=⟦` +
				strings.Repeat("0a", 32) + `⟧`,
			`Authorization: AWS4-HMAC-SHA256 ⟦Credential=` + akia + `/20240102/eu-central-1/s3/aws4_request, ` +
				`SignedHeaders=host, Signature=0a0b⟧`,
			`AccessDeniedException: User: arn:aws:sts::123456789012:assumed-role/app is not authorized to ` +
				`perform: secretsmanager:GetSecretValue on resource: ` +
				`arn:aws:secretsmanager:eu-central-1:123456789012:secret:db-creds-AbC1d2`,
			`ResourceNotFoundException: Secrets Manager can't find the specified secret.`,
			`NoCredentialProviders: no valid providers in chain. Deprecated.`,
			`ExpiredToken: The provided token has expired.`,
			`UnrecognizedClientException: The security token included in the request is invalid.`,
			`KMSInvalidStateException: ` +
				`arn:aws:kms:eu-central-1:123456789012:key/550e8400-e29b-41d4-a716-446655440000 is pending deletion`,
			`DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=⟦` + letters + letters[:39] +
				`w==⟧;EndpointSuffix=core.windows.net`,
			`Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=⟦` +
				letters[:43] + `=⟧`,
			`GET https://shop.blob.core.windows.net/c/b.txt?sv=2022-11-02&sp=r&sig=⟦` + letters + `%3D⟧: 403 ` +
				`AuthenticationFailed`,
			`AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the ` +
				`client secret value, not the client secret ID, for a secret added to app ` +
				`'550e8400-e29b-41d4-a716-446655440000'.`,
			`ClientSecretCredential authentication failed. POST ` +
				`https://login.microsoftonline.com/common/oauth2/v2.0/token RESPONSE 401 Unauthorized`,
			`googleapi: Error 403: Permission 'storage.objects.get' denied on resource (or it may not exist)., ` +
				`forbidden`,
			`rpc error: code = PermissionDenied desc = user:bob@example.com lacks secretmanager.versions.access ` +
				`for projects/shop/secrets/db`,
			`API key not valid. Please pass a valid API key. reason: API_KEY_INVALID`,
			`Get "https://maps.googleapis.com/maps/api/geocode/json?address=x&key=⟦` + "AI" + "za" +
				letters[:35] + `⟧": EOF`,
			`oauth2: cannot fetch token: 401 Unauthorized`,
			`oauth2: "invalid_grant" "Bad Request"`,
			`google: could not find default credentials. See ` +
				`https://cloud.google.com/docs/authentication/external/set-up-adc for more information`,
			`{"type":"service_account","project_id":"shop","private_key_id":"0a1b2c","private_key":"⟦` +
				strings.ReplaceAll(pem, "\n", `\n`) + `\n⟧","client_email":"app@shop.iam.gserviceaccount.com"}`,
			`digitalocean: 401 for token ⟦dop` + `_v1_` + strings.Repeat("0a", 32) + `⟧`,
			`Error: invalid value ⟦` + "hv" + "s." + letters[:24] + `⟧: * permission denied`,
			`Error making API request. URL: PUT https://vault:8200/v1/auth/approle/login Code: 400. Errors: * ` +
				`invalid role or secret ID`,
		},
		"AI and services": {
			`key ⟦sk-SECRET-123⟧ is invalid`,
			`Incorrect API key provided: ⟦abcdef-123⟧. You can find your API key at ` +
				`https://platform.openai.com/account/api-keys.`,
			`Incorrect API key provided: ⟦` + "s" + "k-proj-" + letters + `⟧.`,
			`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`,
			`This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the ` +
				`messages, 1000 in the completion).`,
			`Rate limit reached for gpt-4o in organization org-abc123 on tokens per min (TPM): Limit 30000, Used ` +
				`29000, Requested 2000.`,
			`anthropic: 401 for ⟦` + "s" + "k-ant-api03-" + letters + `⟧`,
			`Invalid credentials in Authorization header: ⟦` + "h" + "f_" + letters[:34] + `⟧`,
			`GET https://api.github.com/repos/a/b: 401 Bad credentials []`,
			`fatal: unable to access 'https://⟦x-access-token:` + ghp + `⟧@github.com/a/b.git/': The requested ` +
				`URL returned error: 403`,
			`fatal: unable to access 'https://⟦` + ghp + `⟧@github.com/a/b.git/': Could not resolve host: github.com`,
			`fatal: Authentication failed for 'https://github.com/a/b.git/'`,
			`fatal: could not read Password for 'https://bob@github.com': terminal prompts disabled`,
			`git@github.com: Permission denied (publickey).`,
			`ssh://git@github.com:22/a/b.git: reference 9fceb02d0ae598e95dc970b74767f19372d61af8 not found`,
			`remote: HTTP Basic: Access denied. The provided password or token is incorrect`,
			`gitlab: 401 for ⟦gl` + `pat-` + letters[:20] + `⟧, path /api/v4/projects`,
			`slack: invalid_auth (⟦xo` + `xb-123456789012-` + letters[:24] + `⟧)`,
			`Post "https://hooks.slack.com/services/⟦T00000000/B00000000/` + letters[:24] + `⟧": EOF`,
			`Post "https://api.telegram.org/bot⟦123456789:AA` + letters[:33] + `⟧/sendMessage": EOF`,
			`stripe: Invalid API Key provided: ⟦sk` + `_live_` + letters[:24] + `⟧`,
			`No such customer: 'cus_NffrFeUfNV2Hib'`,
			`sendgrid: 401 ⟦S` + `G.` + letters[:22] + `.` + letters[:43] + `⟧`,
			`npm ERR! code E401 npm ERR! //registry.npmjs.org/:_authToken=⟦np` + `m_` + letters[:36] + `⟧`,
			`npm error 404 Not Found - GET https://registry.npmjs.org/@scope%2fpkg - Not found`,
			`twilio: Authenticate code=20003 status=401`,
			`jwt: ⟦` + jwt + `⟧ is expired`,
			`token contains an invalid number of segments`,
			`token is malformed: could not base64 decode header: illegal base64 data at input byte 4`,
			`token has invalid claims: token is expired`,
			`failed to verify token: rs256 signature mismatch`,
		},
		"command lines": {
			`Error from server (NotFound): secrets "db-creds" not found`,
			`error: You must be logged in to the server (the server has asked for the client to provide credentials)`,
			`The Secret "x" is invalid: data[password]: Invalid value: illegal base64 data at input byte 4`,
			`MountVolume.SetUp failed for volume "v" : secret "db-creds" not found`,
			`Unable to connect to the server: getting credentials: exec: executable aws not found`,
			`users "system:serviceaccount:shop:app" cannot get resource "secrets" in API group "" in the ` +
				`namespace "shop"`,
			`Error: Missing required argument on main.tf line 3: The argument "password" is required, but no ` +
				`definition was found.`,
			"Error: Invalid reference on main.tf line 3\n  3:   token = var.api_token\n",
			"Error: on main.tf line 3\n  3:   token = \"⟦abc123⟧\"\n",
			`Error response from daemon: Get "https://registry.example.com/v2/": unauthorized: authentication required`,
			`docker: image myteam/auth-service:1.4.2@sha256:` +
				`9fceb02d0ae598e95dc970b74767f19372d61af89fceb02d0ae598e95dc970b7 not found`,
			`WARNING! Using --password via the CLI is insecure. Use --password-stdin.`,
			`command failed: docker login -u bob --password ⟦hunter2⟧ registry.example.com: exit status 1`,
			`command failed: mysqldump --user=app --password=⟦hunter2⟧ --host=db shop`,
			`command failed: mysqldump -u app -p⟦hunter2⟧ -h db shop`,
			`mysql -u root -p shop: exit status 1`,
			`exec ["/usr/bin/mysql","-p⟦hunter2⟧","-h","db"]: exit status 1`,
			`exec ["mysql","-u","root","-p"]: exit status 1`,
			`docker login -u bob -p ⟦hunter2⟧ registry.example.com: exit status 1`,
			`docker run -p 8080:80 -v /login:/x myteam/login: exit status 125`,
			`sshpass -p '⟦hun ter2⟧' ssh -p 2222 bob@10.0.0.7: exit status 5`,
			`mongodump --host db -p ⟦hunter2⟧ --db shop: exit status 1`,
			`redis-cli -h cache -a ⟦hunter2⟧ ping: exit status 1`,
			`redis-cli -a $REDIS_AUTH ping: exit status 1`,
			`curl -sS -u ⟦bob:hunter2⟧ https://api.example.com: exit status 22`,
			`curl -u bob https://api.example.com: exit status 22`,
			`mkdir -p /var/lib/mysql -m 700: permission denied`,
			`exec ["tool","--api-key","⟦abc⟧","--verbose"]: exit status 1`,
			`flag needs an argument: --token`,
			`flag provided but not defined: -token`,
			`unknown flag: --secret-file /etc/x/secret.yaml`,
			`helm: failed to parse key "image.tag" in values.yaml`,
			`export DB_PASSWORD=⟦hunter2⟧ && ./run: exit status 2`,
			`env: TOKEN=⟦abc⟧ HOME=/root PATH=/usr/bin`,
			`{User:admin Password:⟦hunter2⟧ Host:db Port:5432}`,
			`env: [{"name":"HOME","value":"/root"},{"name":"DB_PASSWORD","value":"⟦hunter2⟧"}]`,
			`spec: "{\"name\": \"API_TOKEN\", \"value\": \"⟦abc⟧\"}"`,
			"env:\n        - name: DB_PASSWORD\n          value: ⟦hunter2⟧\n        - name: MODE\n          value: fast\n",
			`[{Name:DB_PASSWORD Value:⟦hunter2⟧ ValueFrom:nil} {Name:PASSWORD_FILE Value:/run/pw ValueFrom:nil}]`,
			`headers: [{"key":"Authorization","value":"⟦Bearer abc⟧"},{"key":"Accept","value":"*/*"}]`,
			`Tags: [{Key=team,Value=shop}], {Key=secret,Value=⟦abc⟧}`,
			`the key "password" has no value: see the docs`,
			`{user=admin, password=⟦hun,ter2⟧, host=db}`,
			`open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory`,
			`open C:\Users\bob\.aws\credentials: The system cannot find the file specified.`,
			`stat token.json: permission denied`,
			`ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], no supported ` +
				`methods remain`,
			`Load key "/root/.ssh/id_rsa": bad permissions`,
			`sudo: 3 incorrect password attempts`,
			"config:\n  user: bob\n  password: ⟦hunter2⟧\n  host: db\n",
			"password: ⟦hunter⟧\nuser: bob",
			`ansible: vault_password=⟦a$b%c⟧`,
			`panic: runtime error at auth.go:12 token.go:45 +0x1a`,
			`go: module github.com/x/auth@v1.2.3: reading ` +
				`https://proxy.golang.org/github.com/x/auth/@v/v1.2.3.mod: 404`,
		},
		"mail, directories and queues": {
			`535 5.7.8 Username and Password not accepted. For more information, go to ` +
				`https://support.google.com/mail/?p=BadCredentials`,
			`535 5.7.3 Authentication unsuccessful [AM0PR01CA0001.eurprd01.prod.exchangelabs.com]`,
			`smtp: AUTH PLAIN ⟦AGJvYgBodW50ZXIy⟧ rejected`,
			`SASL PLAIN authentication failed: generic failure`,
			`LDAP Result Code 49 "Invalid Credentials": 80090308: LdapErr: DSID-0C09042A, comment: ` +
				`AcceptSecurityContext error, data 52e, v4563`,
			`ldap: bind failed for cn=admin,dc=example,dc=com password=⟦hunter2⟧`,
			`ldap://ldap.example.com:389: invalid DN syntax`,
			`kafka server: SASL Authentication failed`,
			`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="app" ` +
				`password="⟦app-pw⟧";`,
			`kafka: client has run out of available brokers to talk to: dial tcp 10.0.0.7:9092: i/o timeout`,
			`Failed to deserialize key: unexpected EOF, topic=orders partition=3 offset=42`,
			`Exception (403) Reason: "username or password not allowed": amqp://⟦app:hunter2⟧@mq.internal:5672/shop`,
			`nats: Authorization Violation`,
			`mqtt: bad user name or password`,
			`ftp: 530 Login incorrect. ftp://⟦bob:hunter2⟧@files.example.com/in/a.csv`,
		},
		"names and sentences": {
			`login failed with password: ⟦hunter2⟧ for user admin`, `password "⟦hunter2⟧" is wrong`, `token ` +
				`⟦aB3dE6gH9aB3dE6⟧ is revoked`,
			`"keys":["color","size"]`, `{"key":"PROJ-12","id":3}`, `issue key=PROJ-12 does not exist`,
			`NoSuchKey: the object with key=photos/IMG_0001.JPG does not exist`, `unexpected token: '}'`,
			`invalid value for "auth": must be one of none, basic`, `tokens_per_minute=30000`,
			`http://[2001:db8::1]:8080/users/bob@example.com: 404`, `GET http://[::1]:8080/@scope/pkg: 404`,
			`<password><![CDATA[⟦hunter2⟧]]></password>`, `private_key=/etc/ssl/x.pem`, `cannot read key: /etc/ssl/private.key`,
			`InvalidKeyException: foo`,
			`Error: password: "must have 8 characters"`, `key: string, value: int`,
			`{"Key":"logs/2024/A-b.log"}`, `secret: ⟦topsecret⟧`,
			`wrong API key: ⟦0123456789abcdef0123456789abcdef⟧`, `X-Api-Key: ⟦550e8400-e29b-41d4-a716-446655440000⟧`,
			`password : ⟦hunter2⟧`, `'token': '⟦abc⟧'`, `:token => "⟦abc⟧"`, `passwd:⟦a:b:c⟧ user:bob`,
			`Password=⟦it's⟧ Host=db`,
			`{"password":⟦123456⟧,"credentials":⟦{"a":["}"]}⟧,"id":7}`, `{"auth":{},"tokens":[],"token":null}`,
			`{"credentials":⟦{"user":"bob","value":"hunt⟧`, `{\"credentials\":⟦{\"a\":\"}\"}⟧,\"id\":7}`,
			`password "reset" failed`, `API key "default" was deleted`, `password='⟦a⟧' 'b'`,
		},
		"values that aren't secret": {
			`UPDATE users SET password = crypt($1, gen_salt('bf')) WHERE id = 17`, `key=https://example.com/a`,
			`key="10.5"`, `key=2024-01-02T03:04:05Z`, `token={{.Token}}`, `Authorization: Bearer ⟦abcdefghijklmnopqrstuvwxyz⟧`,
			`key=9fceb02d0ae598e95dc970b74767f19372d61af8`, `hunter: 2 access token: ⟦a1b2⟧`,
		},
		"prose": {
			`invalid token`, `token expired`, `invalid token: expired`, `token: expired`, `missing required ` +
				`parameter: key`,
			`unknown key: "color"`, `key: not found`, `password: must be at least 8 characters`, `authentication: ` +
				`failed`,
			`auth: x509: certificate has expired or is not yet valid`, `auth: user42 not found`, `secret: v1 is ` +
				`not supported`,
			`unexpected token: '}' at position 12`, `Unexpected token < in JSON at position 0`, `syntax error: ` +
				`unexpected token ';'`,
			`failed to parse private key: asn1: structure error: tags don't match`,
			`tls: failed to find any PEM data in key input`, `map key="color" is unknown`, `primary key: 42`,
			`primary_key=42`,
			`Key=Environment,Value=prod`, `next_page_token: null`, `token=${TOKEN}`, `password=****`, `password=xxxxx`,
			`use --token <token> to log in`, `token_type=bearer expires_in=3600`, `key_id=0a1b2c`, `keyboard: hunter2`,
			`author: bob42`, `std::auth::token::verify failed`, `urn:ietf:params:oauth:grant-type:jwt-bearer`,
			`*errors.errorString`, `2024-01-02T03:04:05Z`, `id 550e8400-e29b-41d4-a716-446655440000`, ``,
			`commit 9fceb02d0ae598e95dc970b74767f19372d61af8`, `sk-learn isn't installed`, `git ref ghp_branch ` +
				`not found`,
			`lookup auth-service on 10.0.0.2:53: no such host`, `dial tcp: auth-service:8080: connect: connection ` +
				`refused`,
			`task-runner-123 failed`, `missing scope secrets:read`, `токен: не найден`, `the token’s issuer is wrong`,
			"\xff\xfe token: \xff", `password:`, `password=`, `token: `, `"token"`, `--password`, `[REDACTED]`,
			`password=[REDACTED]`,
		},
		"keys in PEM": {
			"bad key: ⟦" + pem + "⟧ (in /etc/x.key)",
			"bad key: ⟦" + pem[:len(pem)-60] + "⟧",
			"⟦" + pem[40:] + "⟧ was rejected",
			"x ⟦" + dashes("BEGIN", "EC PRIVATE") + "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B\n\n" +
				pemBody + "\n" + dashes("END", "EC PRIVATE") + "⟧\n",
			"x ⟦" + dashes("BEGIN", "OPENSSH PRIVATE") + `\n` + pemBody + `\n` + dashes("END",
				"OPENSSH PRIVATE") + `⟧\ny`,
			"-----BEGIN CERTIFICATE-----\n" + pemBody + "\n-----END CERTIFICATE-----",
			"⟦AGE-SECRET-" + "KEY-1" + strings.Repeat("Q7", 29) + "⟧",
		},
	}
}
